"""torch_npu.contrib.module.prefetcher, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import Prefetcher

__all__ = ["Prefetcher"]
