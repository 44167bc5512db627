"""`torch_npu.testing.common_distributed`, by AnyCANN."""

from anycann.adapters.torch.testing.decorators import skipIfUnsupportMultiNPU

__all__ = ["skipIfUnsupportMultiNPU"]
