"""What `torch.nn.DataParallel` asks of torch's C++ code, which builds for cpus leave out: tensors spread over devices and put together."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.device import devices


def install() -> None:
    """Add to `torch._C` the functions of `torch.nn.parallel.comm` that it lacks."""
    for name, function in {
        "_scatter": _scatter,
        "_scatter_out": _scatter_out,
        "_gather": _gather,
        "_gather_out": _gather_out,
        "_broadcast": _broadcast,
        "_broadcast_out": _broadcast_out,
        "_broadcast_coalesced": _broadcast_coalesced,
    }.items():
        if not hasattr(torch._C, name):
            setattr(torch._C, name, function)


def _place(index: int | None) -> Any:
    """Device `index`: -1 is the cpu, None the current npu."""
    return torch.device("cpu") if index == -1 else torch.device(devices.NAME, devices.index_of(index))


def _pieces(tensor: Any, count: int, sizes: Any, dim: int) -> Any:
    return tensor.split(list(sizes), dim) if sizes is not None else tensor.chunk(count, dim)


def _scatter(tensor: Any, places: Any, chunk_sizes: Any = None, dim: int = 0, streams: Any = None) -> list[Any]:
    pieces = _pieces(tensor, len(places), chunk_sizes, dim)
    return [piece.to(_place(place)) for piece, place in zip(pieces, places, strict=False)]


def _scatter_out(tensor: Any, out: Any, dim: int = 0, streams: Any = None) -> Any:
    for target, piece in zip(out, _pieces(tensor, len(out), [target.size(dim) for target in out], dim), strict=True):
        target.copy_(piece)
    return out


def _gather(tensors: Any, dim: int, destination: int | None = None) -> Any:
    place = _place(destination)
    return torch.cat([tensor.to(place) for tensor in tensors], dim)


def _gather_out(tensors: Any, out: Any, dim: int) -> Any:
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))


def _broadcast(tensor: Any, places: Any) -> list[Any]:
    return [tensor.to(_place(place)) for place in places]


def _broadcast_out(tensor: Any, out: Any) -> Any:
    for target in out:
        target.copy_(tensor)
    return out


def _broadcast_coalesced(tensors: Any, places: Any, buffer_size: int = 0) -> list[list[Any]]:
    """For each device its copies; those of the first device, where the tensors are, are the tensors."""
    return [[tensor.to(_place(place)) for tensor in tensors] for place in places]
