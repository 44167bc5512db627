"""apex.contrib.combine_tensors."""

from anycann.adapters.torch.utils.combined import npu_combine_tensors as combine_npu

__all__ = ["combine_npu"]
