"""Random numbers: each npu has its own generator, and `torch.Generator(device="npu")` makes more.

They are torch's cpu generators, which is what the kernels take; only the device they report is another.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from anycann.adapters.torch.device import devices

_HostGenerator = torch.Generator
IMPLEMENTATIONS = (ctypes.c_uint64 * devices.count())()  # where torch has the npus' own generators, 0 for those that nobody asked for yet


class _NamedDevice(type(_HostGenerator)):  # type: ignore[misc]
    """`isinstance(generator, torch.Generator)` holds for generators that torch's C++ code made as well."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(_HostGenerator, instance)


class Generator(torch.Generator, metaclass=_NamedDevice):
    """`torch.Generator` for every device; `device` is what it was made for."""

    _device: Any

    def __new__(cls, device: Any = "cpu") -> Any:
        named = torch.device("cpu" if device is None else device)
        if named.type not in ("cpu", devices.NAME):
            return _HostGenerator(named)
        made = _HostGenerator.__new__(cls, "cpu")
        made._device = torch.device(devices.NAME, devices.index_of(named)) if named.type == devices.NAME else named
        return made

    def __init__(self, device: Any = "cpu"):
        """The work is done in `__new__`, as in torch."""

    @property
    def device(self) -> Any:
        """The device this generator was made for."""
        return self._device

    def __reduce__(self) -> Any:
        return _restored, (str(self._device), self.get_state())


def _restored(device: str, state: Any) -> Any:
    made = Generator(device)
    made.set_state(state)
    return made


@cache
def default_generator(index: int) -> Any:
    """The generator of npu `index`, for operators that are given none."""
    made = Generator(torch.device(devices.NAME, index))
    made.manual_seed(torch.initial_seed())
    IMPLEMENTATIONS[index] = made._cdata
    return made


def install() -> None:
    """Make `torch.Generator` the one that knows npus."""
    torch.Generator = Generator
