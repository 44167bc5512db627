"""What DTensor must know of the npu: the backward of linear, which is one operator there, and random numbers that have no offset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._random import OffsetBasedRNGTracker

_of_other_devices = OffsetBasedRNGTracker._distribute_region


def install() -> None:
    """Teach DTensor both."""
    DTensor._op_dispatcher._custom_op_handlers[torch.ops.aten.linear_backward.default] = _linear_backward
    OffsetBasedRNGTracker._distribute_region = _random_region


def _linear_backward(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Gradients of x @ weight.T + bias by x (..., k), weight (n, k) and bias (n,), for a gradient (..., n); None where not asked for."""
    values, gradient, weight, (of_values, of_weight, of_bias) = args
    rows = gradient.reshape(-1, gradient.shape[-1])
    return (
        torch.matmul(gradient, weight) if of_values else None,
        torch.mm(rows.t(), values.reshape(-1, values.shape[-1])) if of_weight else None,
        rows.sum(0) if of_bias else None,
    )


@contextmanager
def _random_region(self: Any, spec: Any, generator: Any = None) -> Iterator[None]:
    """Within it, ranks that hold the same part of a tensor draw the same numbers, and other ranks others.

    A GPU's generator counts, and each part begins at its own count. The npu's is a Mersenne twister: each part begins with a seed of its
    own, made from one that all ranks draw. A tensor that is whole on every rank is drawn as on one.
    """
    if self._device.type != "npu":
        with _of_other_devices(self, spec, generator):
            yield
        return
    if not (self.distribute_region_enabled and any(placement.is_shard() for placement in spec.placements)):
        yield
        return
    generator = generator or torch.npu.default_generators[torch.npu.current_device()]
    part, _ = self._compute_rng_offsets(spec)
    shared = int(torch.randint(1 << 48, (), generator=generator, device="npu"))
    state = generator.get_state()
    generator.manual_seed((shared + int(part) * 0x9E3779B1) % (1 << 63))
    try:
        yield
    finally:
        generator.set_state(state)
