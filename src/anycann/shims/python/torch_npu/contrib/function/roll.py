"""torch_npu.contrib.function.roll, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import roll

__all__ = ["roll"]
