"""What one kernel does not compute although its nodes fit into one loop nest: values many times over, long rows on one thread, too much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import math

import onnx_ir as ir

from anycann.te.expression import COSTLY, Load, Op, Var
from anycann.te.nest import CannotFuse, Nest, contractions, reductions
from anycann.te.tensor import Compute, Contraction, Reduction, Tensor
from anycann.te.traversal import walk

SERIAL_LIMIT = 1 << 18  # element operations a group may do on one thread because its reduction has too few rows to split
ROWS_TO_SPLIT = 8
MOST_NODES = 64
# Each stage of a nest computes what it reads anew: thirty layer norms in one kernel were 3571 expressions. Networks come to 130.
MOST_EXPRESSIONS = 512


def check_kernel(node: ir.Node, added: Sequence[Tensor], tensors: Mapping[ir.Value, Tensor], outputs: Sequence[Tensor], nest: Nest) -> None:
    """Raises CannotFuse with the reason why `node`, which computes `added`, is better not part of the kernel of `nest`.

    tensors: every value of the kernel. outputs: what it stores.
    """
    anchors = contractions(outputs)
    problem = _size_problem(nest)
    if problem is None and anchors:
        problem = _anchor_problem(anchors, nest, added)
    elif problem is None:
        problem = _read_problem(node, added, tensors, nest) or _reduction_problem(nest, outputs)
    if problem is not None:
        raise CannotFuse(problem)


def _size_problem(nest: Nest) -> str | None:
    count = sum(len(walk(stage.body)) for stage in nest.stages)
    return f"the kernel would compute {count} expressions; {MOST_EXPRESSIONS} are the most" if count > MOST_EXPRESSIONS else None


def _anchor_problem(anchors: Sequence[Contraction], nest: Nest, added: Sequence[Tensor]) -> str | None:
    if len(anchors) > 1:
        return "a kernel computes one convolution or matrix product"
    if any(not isinstance(t, Compute) for t in added):
        return "a reduction follows a convolution or matrix product"
    for stage in nest.stages:
        for expr in walk(stage.body):
            if isinstance(expr, Load) and expr.tensor is anchors[0] and not _is_own_place(expr, nest.outer):
                return "the product is read at other places than it is written"
    return None


def _is_own_place(load: Load, outer: Sequence[Var]) -> bool:
    """Whether every axis of the tensor is read at its own loop, in order."""
    axes = [(index, extent) for index, extent in zip(load.indices, load.tensor.shape, strict=True) if extent != 1]
    return [index for index, _ in axes] == list(outer) and [extent for _, extent in axes] == [loop.extent for loop in outer]


def _read_problem(node: ir.Node, added: Sequence[Tensor], tensors: Mapping[ir.Value, Tensor], nest: Nest) -> str | None:
    """Joining must not compute elements of the group many times over; what is made of a row's reduction is computed once a row."""
    rows = math.prod(v.extent for v in nest.outer)
    for operand in node.inputs:
        inner = None if operand is None else tensors.get(operand)
        if operand is None or not isinstance(inner, Compute | Reduction) or (inner.size == rows and reductions([inner])):
            continue
        reads = sum(_reads(tensor, inner) for tensor in added)
        if reads > 1.5 * max(1, inner.size) and _cost(inner) > 1:
            return f"it reads each element of {operand.name!r} {reads / max(1, inner.size):.0f} times"
    return None


def _reads(tensor: Tensor, inner: Tensor) -> float:
    """How often `tensor` evaluates elements of `inner`, as one stage (stages of one row are weighed in _reduction_problem)."""
    most = 0.0
    seen: set[int] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if id(current) in seen or current is inner or not isinstance(current, Compute | Reduction):
            continue
        seen.add(id(current))
        times = current.size * (math.prod(v.extent for v in current.reduce_axes) if isinstance(current, Reduction) else 1)
        places = {tuple(id(i) for i in e.indices) for e in walk(current.body) if isinstance(e, Load) and e.tensor is inner}
        most = max(most, float(times * len(places)))
        stack += [e.tensor for e in walk(current.body) if isinstance(e, Load)]
    return most


def _cost(tensor: Tensor) -> int:
    """Operations of one element, with everything it is computed from; what is read by two is computed once."""
    total = 0
    seen: set[int] = set()
    stack = [tensor]
    while stack:
        current = stack.pop()
        if id(current) in seen or not isinstance(current, Compute | Reduction):
            continue
        seen.add(id(current))
        for expr in walk(current.body):
            if isinstance(expr, Op):
                total += 8 if expr.name in COSTLY else 1
            elif isinstance(expr, Load) and isinstance(expr.tensor, Reduction):
                total += 1
            elif isinstance(expr, Load):
                stack.append(expr.tensor)
    return total


def _reduction_problem(nest: Nest, outputs: Sequence[Tensor]) -> str | None:
    """A nest with a reduction must have rows to split, or be small."""
    if not any(stage.over for stage in nest.stages):
        return None
    rows = math.prod(v.extent for v in nest.outer)
    work = rows * sum(math.prod(v.extent for v in stage.over) for stage in nest.stages)
    if rows < ROWS_TO_SPLIT and work > SERIAL_LIMIT and any(isinstance(t, Compute) for t in outputs):
        return f"its reduction has only {rows} rows to split over threads"
    return None
