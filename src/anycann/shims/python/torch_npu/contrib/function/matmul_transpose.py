"""torch_npu.contrib.function.matmul_transpose, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import matmul_transpose

__all__ = ["matmul_transpose"]
