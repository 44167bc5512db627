"""torch_npu.contrib.function.npu_functional, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import dropout_with_byte_mask

__all__ = ["dropout_with_byte_mask"]
