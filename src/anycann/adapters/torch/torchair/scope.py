"""`torchair.scope`: where and how parts of a graph run on Ascend. There is one stream of kernels here, so that they change nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def npu_stream_switch(stream_tag: str, stream_priority: int = 0) -> AbstractContextManager[None]:
    """`with npu_stream_switch("1"):` what is in it may run beside the rest; it runs in the order of the program."""
    return nullcontext()


def super_kernel(scope: str, options: str = "") -> AbstractContextManager[None]:
    """`with super_kernel("name"):` what is in it is fused as far as everything else is."""
    return nullcontext()


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> AbstractContextManager[None]:
    """`with limit_core_num(4, 5):` cores of the chip for what is in it; threads are set for the process (torch.set_num_threads)."""
    return nullcontext()


def npu_wait_tensor(self: Any, dependency: Any) -> Any:
    """`self`, once `dependency` is computed: the order of the program."""
    return self
