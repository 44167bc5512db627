"""torch_npu.contrib.function.fuse_add_softmax_dropout, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import fuse_add_softmax_dropout

__all__ = ["fuse_add_softmax_dropout"]
