"""torch_npu.contrib.module, by AnyCANN."""

from anycann.adapters.torch.contrib import LAYERS, MODULES, NORMS, QUANTISED

globals().update({name: getattr(MODULES[name], name) for name in LAYERS + NORMS + QUANTISED})
__all__ = list(LAYERS + NORMS + QUANTISED)
