"""Which device a program runs on: an npu, else a GPU, else the host."""

from __future__ import annotations

import importlib.util

import torch


def use_npu_if_there() -> bool:
    """Import torch_npu, if it is installed; answers whether there is an npu."""
    if importlib.util.find_spec("torch_npu") is None:
        return False
    import torch_npu  # noqa: F401

    return bool(torch.npu.is_available())


def best_device(wanted: str = "auto", index: int = 0) -> torch.device:
    """The device `wanted`, or the best there is for "auto". Raises RuntimeError if it is not there."""
    npu = use_npu_if_there()
    there = [name for name, is_there in (("npu", npu), ("cuda", torch.cuda.is_available()), ("cpu", True)) if is_there]
    kind = there[0] if wanted == "auto" else torch.device(wanted).type
    if kind not in there:
        raise RuntimeError(f"device {wanted} is not there; there are {', '.join(there)}")
    if kind == "cpu":
        return torch.device("cpu")
    given = None if wanted == "auto" else torch.device(wanted).index
    return torch.device(kind, index if given is None else given)


def synchronize(device: torch.device) -> None:
    """Wait until everything on `device` is done."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def use(device: torch.device) -> None:
    """Make `device` the current one."""
    if device.type != "cpu":
        getattr(torch, device.type).set_device(device)
