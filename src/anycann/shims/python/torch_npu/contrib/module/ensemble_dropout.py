"""torch_npu.contrib.module.ensemble_dropout, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import NpuCachedDropout, NpuFairseqDropout, NpuPreGenDropout

__all__ = ["NpuCachedDropout", "NpuFairseqDropout", "NpuPreGenDropout"]
