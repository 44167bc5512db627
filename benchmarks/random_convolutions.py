"""Convolutions with sizes that nobody picked, for `benchmarks.tuning`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
import random

from benchmarks.drawn import FLOPS, Drawn, by, channels, extent


@dataclass(frozen=True)
class _Kind:
    """What a family of convolutions draws from. group: of the drawn channels."""

    kernels: tuple[int, ...]
    strides: tuple[int, ...] = (1,)
    dilations: tuple[int, ...] = (1,)
    batches: tuple[int, ...] = (1,)
    inputs: Callable[[random.Random], int] = channels
    group: Callable[[random.Random, int], int] | None = None
    rank: int = 2
    in_bytes: bool = False

    def draw(self, rng: random.Random) -> Drawn | None:
        """One of them; None for sizes that do not fit each other or are too much work."""
        most = {1: 400, 2: 240, 3: 28}[self.rank]
        batch, stride, dilation = rng.choice(self.batches), rng.choice(self.strides), rng.choice(self.dilations)
        inputs, size = self.inputs(rng), tuple(extent(rng, most) for _ in range(self.rank))
        group = self.group(rng, inputs) if self.group else 1
        outputs = inputs if self.group else channels(rng)
        kernel = (rng.choice(self.kernels),) * self.rank
        pad = rng.choice((0, dilation * (kernel[0] // 2)))
        reach = dilation * (kernel[0] - 1) + 1
        if inputs % group or any(n + 2 * pad < reach for n in size):
            return None
        weights = (outputs, inputs // group, *kernel)
        pixels = prod((n + 2 * pad - reach) // stride + 1 for n in size)
        if not FLOPS[0] < 2 * batch * pixels * prod(weights) < FLOPS[1]:
            return None
        attributes = {"strides": [stride] * self.rank, "dilations": [dilation] * self.rank, "pads": [pad] * 2 * self.rank, "group": group}
        text = f"{inputs}->{outputs} {by(kernel)}/{stride} at {by((batch, *size))} pad {pad}"
        text += (f" group {group}" if group > 1 else "") + (f" dilation {dilation}" if dilation > 1 else "")
        bias = () if self.in_bytes else ((outputs,),)
        return Drawn(text, "Conv", ((batch, inputs, *size),), (weights, *bias), attributes=attributes, image=True, in_bytes=self.in_bytes)


def _some_groups(rng: random.Random, channels: int) -> int:
    return rng.choice([n for n in range(2, channels // 2 + 1) if channels % n == 0] or [1])


def _groups_or_depthwise(rng: random.Random, channels: int) -> int:
    return rng.choice((channels, _some_groups(rng, channels)))


CONVOLUTIONS: Mapping[str, _Kind] = {
    "3x3 and wider": _Kind((3, 3, 3, 5, 7), (1, 1, 2)),
    "pointwise": _Kind((1,), (1, 1, 1, 2)),
    "few channels": _Kind((3, 5, 7, 11), (1, 2, 4), inputs=lambda rng: rng.randint(1, 6)),
    "depthwise": _Kind((3, 3, 5, 7), (1, 1, 2), group=lambda rng, channels: channels),
    "grouped": _Kind((1, 3, 3, 5), (1, 1, 2), group=_some_groups),
    "dilated": _Kind((3, 3, 5), (1,), (2, 3, 4, 6)),
    "1-d": _Kind((1, 3, 5, 9, 15), (1, 1, 2), (1, 1, 2), rank=1),
    "3-d": _Kind((1, 3, 3), (1, 2), rank=3),
    "several images": _Kind((1, 3, 3, 5), (1, 2), batches=(2, 3, 4, 8)),
    "bytes": _Kind((1, 3, 3, 5), (1, 1, 2), batches=(1, 1, 2), in_bytes=True),
    "bytes in groups": _Kind((3, 3, 5), (1, 2), group=_groups_or_depthwise, in_bytes=True),
}
