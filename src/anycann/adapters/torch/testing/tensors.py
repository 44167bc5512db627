"""Random inputs of tests, the same on the CPU and on the npu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

ND = -1  # the format that leaves a tensor as it is
FORMATTED = (torch.float16, torch.float32)  # dtypes that Ascend keeps in formats of its own


def get_npu_device() -> str:
    """The device that tests run on: that of the variable SET_NPU_DEVICE, else the first."""
    return f"npu:{os.environ.get('SET_NPU_DEVICE', '0')}"


def set_npu_device() -> str:
    """Make it the current one, and return its name."""
    name = get_npu_device()
    torch.npu.set_device(name)
    return name


def create_common_tensor(
    item: Sequence[Any], minValue: float, maxValue: float, device: str | torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A uniformly random tensor on the CPU and on `device`; `item`: numpy dtype, npu format (-1: none), shape, what else tests keep."""
    dtype, npu_format, shape = item[:3]
    return _both(np.random.uniform(minValue, maxValue, shape).astype(dtype), npu_format, device)


def create_dtype_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    npu_format: int = ND,
    min_value: int = -5,
    max_value: int = 5,
    no_zero: bool = False,
    device: str | torch.device | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `create_common_tensor` for torch.bool, float16, float32, and int32 for every other dtype; no_zero puts 1 where 0 was drawn."""
    if dtype == torch.bool:
        values: npt.NDArray[Any] = np.random.randint(0, 2, shape).astype(np.bool_)
    elif dtype in FORMATTED:
        values = np.random.uniform(min_value, max_value, shape).astype(np.float16 if dtype == torch.float16 else np.float32)
    else:
        values = np.random.randint(min_value, max_value + 1, shape).astype(np.int32)
    if no_zero:
        values = np.where(values != 0, values, np.ones_like(values))
    return _both(values, npu_format if dtype in FORMATTED else ND, device)


def test_2args_broadcast(fn: Any) -> list[list[npt.NDArray[Any]]]:
    """[CPU result, npu result] of `fn` for operands that broadcast, as arrays."""
    shapes = (((2, 3, 4, 5), (1, 1, 1)), ((2, 3, 4, 5), (4, 5)))
    found = []
    for left, right in shapes:
        (cpu_x, npu_x), (cpu_y, npu_y) = (create_common_tensor((np.float32, ND, shape), 0, 1) for shape in (left, right))
        found.append([fn(cpu_x, cpu_y).numpy(), fn(npu_x, npu_y).cpu().numpy()])
    return found


test_2args_broadcast.__test__ = False  # type: ignore[attr-defined]  # a helper whose name pytest would take for a test


def iter_indices(tensor: torch.Tensor) -> Iterator[Any]:
    """Every index of a tensor."""
    if tensor.dim() == 1:
        return iter(range(len(tensor)))
    return product(*(range(size) for size in tensor.shape)) if tensor.dim() else iter(())


def is_iterable(obj: object) -> bool:
    """Whether `obj` can be iterated over."""
    try:
        iter(obj)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _both(values: npt.NDArray[Any], npu_format: int, device: str | torch.device | None) -> tuple[torch.Tensor, torch.Tensor]:
    values = np.asarray(values)
    there = torch.from_numpy(values.copy()).to(device or get_npu_device())
    if npu_format != ND:
        import torch_npu

        there = torch_npu.npu_format_cast(there, npu_format)
    return torch.from_numpy(values), there
