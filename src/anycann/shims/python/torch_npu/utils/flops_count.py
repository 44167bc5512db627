"""`from torch_npu.utils.flops_count import FlopsCounter`, the older place."""

from anycann.adapters.torch.utils.flops import FlopsCounter

__all__ = ["FlopsCounter"]
