"""Where the elements of a value really lie: back through transposes, reshapes, slices and constant factors to what was computed."""

from __future__ import annotations

from collections.abc import Callable
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import constant_of
from anycann.support.records import dataclass
from anycann.te.strided import Strided


@dataclass(frozen=True)
class Origin:
    """Element [i, ...] of a value is `factor` times the element that `view` names in the memory of `source`."""

    source: ir.Value
    view: Strided
    factor: float = 1.0


@dataclass(frozen=True)
class _Step:
    """A node that makes `result` of its operand `source`, element for element."""

    source: ir.Value
    result: ir.Value
    factor: float = 1.0


def origin(value: ir.Value, turn: Callable[[Strided], Strided | None]) -> Origin | None:
    """The earliest value whose memory holds the elements, with what `turn` makes of the view; it answers None for one that does not do.

    None if not even `value` itself does, or its shape is not known.
    """
    steps = _steps(value)
    for number in range(len(steps) + 1):
        source = steps[number].source if number < len(steps) else value
        type_ = static_type(source)
        view = None if type_ is None else Strided.contiguous(type_.shape)
        for step in steps[number:]:
            view = None if view is None else _moved(view, step)
        turned = None if view is None else turn(view)
        if turned is not None:
            return Origin(source, turned, math.prod(step.factor for step in steps[number:]))
    return None


def _steps(value: ir.Value) -> list[_Step]:
    """From the origin to `value`, in order."""
    steps: list[_Step] = []
    while (node := value.producer()) is not None and node.domain == "" and static_type(value) is not None:
        scaled = scalar_factor(node)
        if scaled is not None:
            steps.insert(0, _Step(scaled[0], value, scaled[1]))
        elif node.op_type in _MOVES and (first := node.inputs[0]) is not None and static_type(first) is not None:
            steps.insert(0, _Step(first, value))
        else:
            break
        value = steps[0].source
    return steps


def scalar_factor(node: ir.Node) -> tuple[ir.Value, float] | None:
    """(x, c) for x * c, c * x and x / c with a known scalar c, if the result has the shape of x."""
    if node.domain or node.op_type not in ("Mul", "Div"):
        return None
    result = static_type(node.outputs[0])
    for number in (0, 1) if node.op_type == "Mul" else (1,):
        known, value = constant_of(node.inputs[number]), node.inputs[1 - number]
        if known is None or known.size != 1 or value is None or static_type(value) != result or known.dtype.kind != "f":
            continue
        factor = float(known.reshape(-1)[0])
        return value, 1 / factor if node.op_type == "Div" and factor else factor
    return None


def _moved(view: Strided, step: _Step) -> Strided | None:
    """The view of a step's result, from that of its operand."""
    node, type_ = step.result.producer(), static_type(step.result)
    assert node is not None
    assert type_ is not None
    return _MOVES[node.op_type](view, node, step.result, type_.shape) if node.op_type in _MOVES else view


Move = Callable[[Strided, ir.Node, ir.Value, tuple[int, ...]], Strided | None]


def _transpose(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    order = node.attributes.get_ints("perm", tuple(range(len(shape)))[::-1])
    return view.transposed(order)


def _reshape(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    return view.reshaped(shape)


def _expand(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    return view.broadcast(shape)


def _same(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    return view


def _slice(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    known = [constant_of(v) for v in node.inputs[1:]]
    if any(array is None for array, v in zip(known, node.inputs[1:], strict=True) if v is not None):
        return None
    starts = [int(n) for n in np.atleast_1d(known[0])]  # type: ignore[arg-type]
    axes = range(len(starts)) if len(known) < 3 or known[2] is None else [int(n) for n in known[2]]
    steps = [1] * len(starts) if len(known) < 4 or known[3] is None else [int(n) for n in known[3]]
    found: Strided | None = view
    for start, axis, step in zip(starts, axes, steps, strict=True):
        if found is None or step < 1:
            return None
        axis %= len(shape)
        extent = view.shape[axis]
        first = min(max(start + extent if start < 0 else start, 0), extent)
        found = found.sliced(axis, first, shape[axis], step)
    return found


def _split(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    axis = node.attributes.get_int("axis", 0) % len(shape)
    before = 0
    for output in node.outputs:
        if output is result:
            return view.sliced(axis, before, shape[axis])
        type_ = static_type(output)
        if type_ is None:
            return None
        before += type_.shape[axis]
    return None


def _gather(view: Strided, node: ir.Node, result: ir.Value, shape: tuple[int, ...]) -> Strided | None:
    index = constant_of(node.inputs[1])
    if index is None or index.ndim:
        return None
    axis = node.attributes.get_int("axis", 0) % len(view.axes)
    taken = view.sliced(axis, int(index) % view.shape[axis], 1)
    return None if taken is None else taken.reshaped(shape)


_MOVES: dict[str, Move] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Flatten": _reshape,
    "Expand": _expand,
    "Identity": _same,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
}
