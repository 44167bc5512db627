"""torch_npu.contrib.function.index_op, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import npu_fast_condition_index_put

__all__ = ["npu_fast_condition_index_put"]
