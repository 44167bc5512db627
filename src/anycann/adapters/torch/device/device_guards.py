"""`torch.npu.set_device` and the context managers of the current npu; what asks whether npus are there and ready."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.device import devices


def is_available() -> bool:
    """Whether there is an npu."""
    return devices.count() > 0


def is_initialized() -> bool:
    """Whether the npus are ready: always."""
    return True


def init() -> None:
    """Make the npus ready: they are."""


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    """How many npus there are."""
    return devices.count()


def current_device() -> int:
    """The index of this thread's current npu."""
    return devices.current()


def set_device(device: Any) -> None:
    """Make `device` (an index, a name, a torch.device) this thread's current npu."""
    devices.make_current(devices.index_of(device))


def synchronize(device: Any = None) -> None:
    """Wait for the work of an npu: an operator is done when its call returns."""
    devices.index_of(device)


class device:  # noqa: N801 - torch's name
    """Context manager: another current npu; None, or a negative index, changes nothing."""

    def __init__(self, device: Any):
        nothing = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if nothing else devices.index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = devices.current()
        if self.idx >= 0:
            devices.make_current(self.idx)

    def __exit__(self, *error: object) -> None:
        devices.make_current(self.prev_idx)


class device_of(device):  # noqa: N801 - torch's name
    """Context manager: the npu of a tensor or storage is current; for one on another device nothing changes."""

    def __init__(self, obj: Any):
        super().__init__(obj.get_device() if obj.device.type == devices.NAME else None)


def exchange_device(index: int) -> int:
    """Make `index` current and return which was; negative numbers change nothing."""
    before = devices.current()
    if index >= 0:
        devices.make_current(devices.checked(index))
    return before


def get_amp_supported_dtype() -> list[Any]:
    """The dtypes that autocast may use."""
    return [torch.float16, torch.bfloat16, torch.float32]


def stop_device(device_id: int) -> int:
    """Stop the work of an npu: none is under way. Returns 0, for success."""
    devices.index_of(device_id)
    return 0


def restart_device(device_id: int, rebuild_all_resources: int = False) -> None:
    """Let an npu work after `stop_device`."""
    devices.index_of(device_id)


def check_uce_in_memory(device_id: int) -> int:
    """The kind of memory error on an npu: 0, none."""
    devices.index_of(device_id)
    return 0


def stress_detect(detect_type: str = "aic") -> int:
    """Compute the same product twice on each npu, and compare: 0 if they agree, 1 if not. Raises ValueError for an unknown kind of test."""
    if detect_type not in ("aic", "hccs"):
        raise ValueError(f"detect_type {detect_type!r}; accepted: aic, hccs")
    x = torch.randn(256, 256, device=devices.NAME)
    return 0 if torch.equal(x @ x, x @ x) else 1
