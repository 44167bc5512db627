"""Where parts of a graph run."""

from anycann.adapters.torch.torchair.scope import limit_core_num, npu_stream_switch, npu_wait_tensor, super_kernel

__all__ = ["limit_core_num", "npu_stream_switch", "npu_wait_tensor", "super_kernel"]
