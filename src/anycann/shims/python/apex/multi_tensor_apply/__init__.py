"""apex.multi_tensor_apply."""

from anycann.adapters.torch.apex.modules import MultiTensorApply

multi_tensor_applier = MultiTensorApply(2048 * 32)

__all__ = ["MultiTensorApply", "multi_tensor_applier"]
