"""Operators that rearrange, cut or pad pictures by regular index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import math

import numpy as np

from anycann.graph.ops.common import all_inside, floats, guarded, retyped
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


# ---- channels and space
def _space_samples(channels: int, high: int, wide: int) -> Callable[[np.random.Generator], Iterable[Sample]]:
    modes: list[dict[str, object]] = [{"mode": "CRD"}, {"mode": "DCR"}] if channels > 4 else [{}]
    return lambda rng: [Sample((floats(rng, 2, channels, high, wide),), {"blocksize": 2, **mode}) for mode in modes]


@operator("DepthToSpace", samples=_space_samples(20, 3, 5))
def depth_to_space(context: Lowering) -> Tensor:
    """Channels become blocks of pixels."""
    data, shape, block = context.operand(0), context.outputs[0].shape, context.integer("blocksize")
    depth_first = context.text("mode") == "DCR"

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        inner = (h % block) * block + w % block
        channel = inner * shape[1] + c if depth_first else c * (block * block) + inner
        return data[n, channel, h // block, w // block]

    return te.compute(shape, element)


@operator("SpaceToDepth", samples=_space_samples(3, 4, 10))
def space_to_depth(context: Lowering) -> Tensor:
    """Blocks of pixels become channels."""
    data, block = context.operand(0), context.integer("blocksize")
    channels = data.shape[1]

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        inner = c // channels
        return data[n, c % channels, h * block + inner // block, w * block + inner % block]

    return te.compute(context.outputs[0].shape, element)


def _crop_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, new, axes in (
        ((7, 20), [4, 25], None),
        ((2, 3, 8, 5), [5, 8], [-2, -1]),
        ((2, 18, 3, 4), [17, 5], [1, 3]),
        ((10,), [10], None),
    ):
        yield Sample((floats(rng, *shape), np.array(new, np.int64)), {"axes": axes}, constant=(1,))
    yield from retyped(Sample((floats(rng, 3, 20), np.array([5, 9], np.int64)), constant=(1,)), ("int32", "float64", "float16"), 0)


@operator("CenterCropPad", samples=_crop_samples)
def center_crop_pad(context: Lowering) -> Tensor:
    """The middle of a larger axis, zeros around a smaller one; the odd element goes to the end."""
    source, shape = context.operand(0), context.outputs[0].shape
    shifts = [(old - new) // 2 if old > new else -((new - old) // 2) for old, new in zip(source.shape, shape, strict=True)]

    def element(*index: Expr) -> Expr:
        places = tuple(i + shift for i, shift in zip(index, shifts, strict=True))
        return guarded(all_inside(places, source.shape), source[places], 0)

    return te.compute(shape, element)


# ---- columns back to a picture
def _column_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for channels, image, block, attributes in (
        (2, [5, 6], [2, 3], {}),
        (17, [5, 5], [3, 3], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (1, [6, 7], [2, 2], {"dilations": [2, 3]}),
        (2, [4, 3, 4], [2, 1, 3], {}), (1, [9], [4], {"strides": [2]}),
    ):  # fmt: skip
        sizes = zip(image, block, _ints(attributes, "strides", 1, block), _ints(attributes, "dilations", 1, block), strict=True)
        padded = _ints(attributes, "pads", 0, block * 2)
        counts = [(n + padded[i] + padded[i + len(block)] - d * (k - 1) - 1) // s + 1 for i, (n, k, s, d) in enumerate(sizes)]
        columns = floats(rng, 2, channels * math.prod(block), math.prod(counts))
        yield Sample((columns, np.array(image, np.int64), np.array(block, np.int64)), dict(attributes), constant=(1, 2))


def _ints(attributes: dict[str, list[int]], name: str, default: int, like: list[int]) -> list[int]:
    return attributes.get(name, [default] * len(like))


@operator("Col2Im", samples=_column_samples)
def columns_to_image(context: Lowering) -> Tensor:
    """Each pixel is the sum of the column elements that a sliding window took from it."""
    source, type_, block = context.operand(0), context.outputs[0], context.constant(2)
    assert block is not None
    kernel = tuple(int(k) for k in block)
    rank = len(kernel)
    strides = context.integers("strides") or (1,) * rank
    dilations = context.integers("dilations") or (1,) * rank
    pads = context.integers("pads") or (0,) * (2 * rank)
    sizes = zip(type_.shape[2:], pads[:rank], pads[rank:], kernel, strides, dilations, strict=True)
    counts = tuple((n + b + e - d * (k - 1) - 1) // s + 1 for n, b, e, k, s, d in sizes)

    def element(*index: Expr) -> Expr:
        n, c, *rest = index
        out, taps = rest[:rank], rest[rank:]
        moved = [p + b - t * d for p, b, t, d in zip(out, pads[:rank], taps, dilations, strict=True)]
        places = tuple(m // s for m, s in zip(moved, strides, strict=True))
        row, column = c, x.const(0, dtypes.int64)
        for k, t, count, place in zip(kernel, taps, counts, places, strict=True):
            row, column = row * k + t, column * count + place
        whole = [x.equal(m % s, 0) for m, s in zip(moved, strides, strict=True) if s > 1]
        present = all_inside(places, counts)
        return guarded(x.all_of(whole if present is None else [*whole, present]), source[n, row, column], 0)

    return te.reduce("sum", type_.shape, kernel, element)
