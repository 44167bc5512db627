"""Results written over an operand that nobody needs any more: a residual sum over the residual, an activation over its argument.

A kernel reads an element before it writes that element, so this is safe where the operand is read only at the index that is written, and
nothing else that the kernel reads lies in its buffer. The sums along a chain of residuals all lie in one buffer so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.aliases import Alias, Aliases
from anycann.passes.order import Unit
from anycann.te.contractions import operands
from anycann.te.expression import Load
from anycann.te.nest import ReduceStage, build_nest, contractions
from anycann.te.simplify import linear
from anycann.te.tensor import Placeholder, Tensor
from anycann.te.traversal import walk


def read_where_written(output: Tensor) -> frozenset[str]:
    """Names of the placeholders that every element of `output` reads at its own index only."""
    nest = build_nest([output])
    same: set[str] = set()
    other = {operand.name for c in contractions([output]) for operand in operands(c.operator) if isinstance(operand, Placeholder)}
    for stage in nest.stages:
        own = () if isinstance(stage, ReduceStage) else tuple(linear(index) for index in stage.index)
        for expr in walk(stage.body):
            if isinstance(expr, Load) and isinstance(expr.tensor, Placeholder):
                matches = not isinstance(stage, ReduceStage) and tuple(linear(index) for index in expr.indices) == own
                (same if matches else other).add(expr.tensor.name)
    return frozenset(same - other)


def write_in_place(
    units: Sequence[Unit],
    aliases: Aliases,
    reads: Mapping[Unit, frozenset[str]],
    last_use: Mapping[ir.Value, int],
    same_storage: Callable[[ir.Value, ir.Value], bool],
    in_arena: Callable[[ir.Value], bool],
) -> Aliases:
    """The aliases with results moved into operands that die. `reads`: what `read_where_written` says of each unit's only result.

    `last_use`: number of the last unit that reads a buffer, by its root. `same_storage`: equal bytes, layout and element type.
    """
    of, last = dict(aliases.of), dict(last_use)
    roots = {alias.root for alias in of.values()}
    for number, unit in enumerate(units):
        result = _only_result(unit)
        if unit not in reads or result is None or result in of or not in_arena(result):
            continue
        owners = [of[value].root if value in of else value for value in unit.inputs]
        for operand, owner in zip(unit.inputs, owners, strict=True):
            same = same_storage(operand, result) and same_storage(owner, result)
            alone = owners.count(owner) == 1 and in_arena(owner) and last.get(owner) == number
            if operand.name in reads[unit] and alone and same:
                of[result] = Alias(owner)
                if result in roots:
                    of.update({value: Alias(owner, a.offset_bytes) for value, a in of.items() if a.root is result})
                last[owner] = max(number, last.get(result, number))
                break
    return Aliases(of, aliases.slices)


def _only_result(unit: Unit) -> ir.Value | None:
    outputs = unit.group.outputs if unit.group is not None else []
    return outputs[0] if len(outputs) == 1 and static_type(outputs[0]) is not None else None
