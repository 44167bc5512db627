"""apex.parallel.distributed."""

from anycann.adapters.torch.apex.modules import DistributedDataParallel, Reducer, flat_dist_call

__all__ = ["DistributedDataParallel", "Reducer", "flat_dist_call"]
