"""Attention: views of its operands, and the kernel with its tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.attention import attention_resumes, attention_scratch_bytes, emit_attention
from anycann.codegen.kernels.attention_shape import AttentionShape, Pointers, Score, lie_side_by_side
from anycann.codegen.kernels.attention_space import AttentionSpace
from anycann.codegen.kernels.attention_tile_plan import is_tiled
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Generated, Tail, memory_name
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import Attention
from anycann.te.strided import Axis, Strided
from anycann.te.tensor import Contraction

DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


def refuse_attention(operator: Attention) -> str | None:
    """Why no kernel computes this attention, or None."""
    operands = (operator.query, operator.key, operator.value)
    if operands[0].tensor.dtype not in DTYPES or len({o.tensor.dtype for o in operands}) > 1:
        return f"attention of {', '.join(str(o.tensor.dtype) for o in operands)}"
    if any(o.tensor.dtype is not dtypes.float32 for o in operator.masks):
        return "attention with a mask that is not float32"
    if any(0 in o.view.shape for o in operands):
        return "attention of operands without elements"
    viewed = (*operands, *operator.masks)
    if any(axis.step is None for o in viewed for axis in o.view.axes[-2:]):
        return "attention with rows that do not lie at one distance"
    if not lie_side_by_side(operator.value.view.axes[-1]):
        return "attention with values that do not lie side by side"
    return None


def attention_shape(operator: Attention) -> AttentionShape:
    """Sizes and views."""
    *batch, rows, depth = operator.query.view.shape
    keys, width = operator.value.view.shape[-2:]
    scores = [Score(o.view, replaces) for o, replaces in zip(operator.masks, operator.replaces, strict=True)]
    views = (operator.query.view, operator.key.view, operator.value.view)
    return AttentionShape(
        tuple(batch),
        rows,
        keys,
        depth,
        width,
        *views,
        tuple(scores),
        operator.scale,
        operator.softcap,
        operator.reach,
        operator.empty_is_zero,
        operator.query.tensor.dtype,
    )


def multiplies_bfloat(operator: Attention, target: Target) -> bool:
    """True if this attention is computed by matrix tiles once its operands are bfloat16."""
    shape, _ = heads_as_rows(replace(attention_shape(operator), dtype=dtypes.bfloat16))
    return is_tiled(shape, target)


def heads_as_rows(shape: AttentionShape) -> tuple[AttentionShape, int]:
    """One query a head: the heads that share keys become the rows of one product, and how many they are (1: nothing is changed)."""
    if shape.rows != 1 or not shape.batch or (shape.reach is not None and shape.reach < shape.keys - 1):
        return shape, 1
    repeats = math.gcd(*(_repeats(view.axes[len(shape.batch) - 1]) for view in (shape.key, shape.value)))
    if repeats == 1:
        return shape, 1
    *outer, heads = shape.batch
    batch = (*outer, heads // repeats)
    query = _rows_of_heads(shape.query, batch, repeats)
    scores = [(_rows_of_heads(score.view, batch, repeats), score.replaces) for score in shape.scores]
    if query is None or any(view is None for view, _ in scores):
        return shape, 1
    key, value = (_split_heads(view, batch, repeats) for view in (shape.key, shape.value))
    assert key is not None
    assert value is not None
    without = [Strided(view.offset, (*view.axes[: len(batch)], *view.axes[-2:])) for view in (key, value)]
    changed = tuple(Score(view, replaces) for view, replaces in scores if view is not None)
    rows = replace(shape, batch=batch, rows=repeats, query=query, key=without[0], value=without[1], scores=changed, reach=None)
    return rows, repeats


def _repeats(heads: Axis) -> int:
    """How many neighbouring heads are the same."""
    return heads.factors[-1].extent if heads.factors and heads.factors[-1].step == 0 else 1


def _split_heads(view: Strided, batch: tuple[int, ...], repeats: int) -> Strided | None:
    return view.reshaped((*batch, repeats, *view.shape[-2:]))


def _rows_of_heads(view: Strided, batch: tuple[int, ...], repeats: int) -> Strided | None:
    """[*batch, repeats, columns] of a view of one row; None if its heads do not lie at one distance."""
    split = _split_heads(view, batch, repeats)
    if split is None or split.axes[len(batch)].step is None:
        return None
    return Strided(split.offset, (*split.axes[: len(batch) + 1], split.axes[-1]))


def generate_attention(
    anchor: Contraction,
    operator: Attention,
    outputs: Sequence[Output],
    layouts: Mapping[str, str],
    target: Target,
    choices: Choices,
    repeats: Repeats,
) -> Generated:
    """The kernel of one attention and its tail; arguments: query, key, value, masks, what the tail reads, outputs."""

    def written() -> Kernel:
        return _write(anchor, operator, outputs, layouts, target, choices)

    return Generated(repeats.kernel("attention", outputs, layouts, (), written))


def _write(
    anchor: Contraction, operator: Attention, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, choices: Choices
) -> Kernel:
    shape, heads = heads_as_rows(attention_shape(operator))
    tile = choices.tile(AttentionSpace(shape, target))
    tail = Tail(anchor, outputs, layouts, target, len(anchor.shape) - 1, split=False)
    operands = (operator.query, operator.key, operator.value, *operator.masks)
    e = Emitter()
    query, key, value, *masks = (e.argument(n) for n in range(len(operands)))
    writer = tail.writer(e, len(operands))

    def write(emitter: Emitter, index: tuple[Value, ...], vector: Value, mask: Value | None) -> None:
        if heads > 1:
            *outer, head, row, column = index
            index = (*outer, emitter.add(emitter.mul(head, heads), row), emitter.const(0), column)
        tail.write(writer, emitter, [index[n] for n in operator.order], vector, mask)

    tasks = emit_attention(e, shape, target, tile, Pointers(query, key, value, tuple(masks)), write)
    symbol, ir = e.finish("attention")
    arguments = (*(memory_name(o.tensor) for o in operands), *tail.inputs, *(o.name for o in outputs))
    scratch, resumes = attention_scratch_bytes(shape, target, tile), attention_resumes(shape, target, tile)
    return Kernel(symbol, ir, arguments, tasks, scratch, shape.flops, resumes=resumes)
