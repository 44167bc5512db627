"""`torchair.scope`: where and how parts of a graph run on Ascend. There is one stream of kernels here, so that they change nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def npu_stream_switch(stream_tag: str, stream_priority: int = 0, enable_inner_parallel: bool = True) -> AbstractContextManager[None]:
    """`with npu_stream_switch("1"):` what is in it may run beside the rest; it runs in the order of the program."""
    return nullcontext()


def super_kernel(scope: str, options: str = "") -> AbstractContextManager[None]:
    """`with super_kernel("name"):` what is in it is fused as far as everything else is."""
    return nullcontext()


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> AbstractContextManager[None]:
    """`with limit_core_num(4, 5):` cores of the chip for what is in it; threads are set for the process (torch.set_num_threads)."""
    return nullcontext()


def op_never_timeout(enable: bool = True) -> AbstractContextManager[None]:
    """`with op_never_timeout():` what is in it may take as long as it wants. Raises TypeError for what is not a bool."""
    if not isinstance(enable, bool):
        raise TypeError(f"op_never_timeout() argument 'enable' must be bool, but got {type(enable).__name__}.")
    return nullcontext()


def data_dump() -> AbstractContextManager[None]:
    """`with data_dump():` operators whose values Ascend's dump writes; `config.debug.data_dump` writes those of a whole graph here."""
    return nullcontext()


def npu_wait_tensor(self: Any, dependency: Any) -> Any:
    """`self`, once `dependency` is computed: the order of the program."""
    return self
