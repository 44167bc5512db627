"""apex.parallel."""

from torch.nn import SyncBatchNorm

from anycann.adapters.torch.apex.modules import DistributedDataParallel, Reducer, convert_syncbn_model

__all__ = ["DistributedDataParallel", "Reducer", "SyncBatchNorm", "convert_syncbn_model"]
