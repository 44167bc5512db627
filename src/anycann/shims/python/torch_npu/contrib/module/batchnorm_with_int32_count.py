"""torch_npu.contrib.module.batchnorm_with_int32_count, by AnyCANN."""

from anycann.adapters.torch.contrib.norms import FastBatchNorm1d, FastBatchNorm2d, FastBatchNorm3d, FastSyncBatchNorm

__all__ = ["FastBatchNorm1d", "FastBatchNorm2d", "FastBatchNorm3d", "FastSyncBatchNorm"]
