"""torch_npu.contrib.function.anchor_generator, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import npu_single_level_responsible_flags

__all__ = ["npu_single_level_responsible_flags"]
