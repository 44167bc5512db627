"""torch_npu.contrib.module, by AnyCANN."""

from anycann.adapters.torch.contrib import LAYERS, MODULES, QUANTISED

globals().update({name: getattr(MODULES[name], name) for name in LAYERS + QUANTISED})
__all__ = list(LAYERS + QUANTISED)
