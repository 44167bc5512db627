"""What surrounds attention: rotary position embedding, and writing into a cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anycann.graph.ops.common import floats, integer, integers, like_first, normal_axis, replaced, retyped, wrapped
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


# ---- rotary embedding
def rotated(context: Lowering, cosine: Tensor, sine: Tensor, positions: Tensor | None, heads: int) -> Tensor:
    """Pairs of elements of each head turned by an angle that depends on their position. X is [B, heads, S, H] or [B, S, heads * H]."""
    source = context.operand(0)
    flat = source.rank == 3
    if flat and heads == 0:
        raise NotLowered("a rotary embedding of a rank-3 tensor without num_heads")
    size = source.shape[-1] // heads if flat else source.shape[-1]
    turned = context.integer("rotary_embedding_dim") or size
    interleaved, half = context.integer("interleaved") == 1, turned // 2

    def element(*index: Expr) -> Expr:
        batch, step = index[0], index[1] if flat else index[2]
        place = index[-1] % size if flat else index[-1]
        first = x.equal(place % 2, 0) if interleaved else place < half
        distance = 1 if interleaved else half
        partner = index[-1] + x.select(first, distance, -distance)
        angle = x.clamp(place // 2 if interleaved else x.select(first, place, place - half), 0, half - 1)
        row = _cache_row(cosine, positions, batch, step)
        bound = source.shape[-1] - 1
        other = source[replaced(index, len(index) - 1, x.clamp(partner, 0, bound))]
        across = other * sine[(*row, angle)]
        value = source[index] * cosine[(*row, angle)] + x.select(first, -across, across)
        return value if turned == size else x.select(place < turned, value, source[index])

    return te.compute(source.shape, element)


def _cache_row(cache: Tensor, positions: Tensor | None, batch: Expr, step: Expr) -> tuple[Expr, ...]:
    if positions is None:
        return (batch, step)
    if positions.rank == 1 and positions.size == 1:
        place = x.cast(positions[integer(0)], dtypes.int64) + step
        return (x.clamp(place, 0, cache.shape[0] - 1),)
    return (wrapped(positions[batch, step], cache.shape[0]),)


def _rotary_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, attributes in (
        ((2, 3, 4, 8), {}), ((2, 3, 4, 8), {"interleaved": 1}), ((2, 3, 4, 20), {"rotary_embedding_dim": 8}),
        ((2, 4, 24), {"num_heads": 3}), ((2, 4, 24), {"num_heads": 3, "interleaved": 1, "rotary_embedding_dim": 4}),
    ):  # fmt: skip
        batch, steps = shape[0], shape[1] if len(shape) == 3 else shape[2]
        half = int(str(attributes.get("rotary_embedding_dim", shape[-1] // (3 if len(shape) == 3 else 1)))) // 2
        yield Sample((floats(rng, *shape), floats(rng, batch, steps, half), floats(rng, batch, steps, half)), dict(attributes))
        positions = integers(rng, batch, steps, low=0, high=9)
        yield Sample((floats(rng, *shape), floats(rng, 10, half), floats(rng, 10, half), positions), dict(attributes))


@operator("RotaryEmbedding", samples=_rotary_samples, infer=like_first)
def rotary_embedding(context: Lowering) -> Tensor:
    """Operands X, cosine, sine, positions?."""
    positions = context.operand(3) if context.has(3) else None
    return rotated(context, context.operand(1), context.operand(2), positions, context.integer("num_heads"))


# ---- caches
def _scatter_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for mode, starts in (("linear", [0, 3]), ("circular", [5, 6])):
        for shape, update, axis in (((2, 3, 7, 20), (2, 3, 2, 20), -2), ((2, 7, 5), (2, 4, 5), 1)):
            yield Sample((floats(rng, *shape), floats(rng, *update), np.array(starts, np.int64)), {"mode": mode, "axis": axis})
    yield Sample((floats(rng, 2, 7, 5), floats(rng, 2, 4, 5)), {"axis": 1})
    yield from retyped(Sample((floats(rng, 2, 7, 5), floats(rng, 2, 4, 5)), {"axis": 1}), ("float16", "int32"))


@operator("TensorScatter", samples=_scatter_samples, infer=like_first)
def tensor_scatter(context: Lowering) -> Tensor:
    """A copy of the cache with rows start, start + 1 ... along an axis replaced, each batch at its own start; circular wraps around."""
    cache, update = context.operand(0), context.operand(1)
    starts = context.operand(2) if context.has(2) else None
    axis = normal_axis(context.integer("axis", -2), cache.rank)
    extent, count = cache.shape[axis], update.shape[axis]

    def element(*index: Expr) -> Expr:
        start: Expr = integer(0) if starts is None else x.cast(starts[index[0]], dtypes.int64)
        place = index[axis] - start
        if context.text("mode", "linear") == "circular":
            place = place % extent
        taken = update[replaced(index, axis, x.clamp(place, 0, count - 1))]
        return x.select((place >= 0) & (place < count), taken, cache[index])

    return te.compute(cache.shape, element)
