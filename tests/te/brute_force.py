"""What expressions and tensors mean, element by element, by the definition alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import itertools
import math

import numpy as np

from anycann.te.expression import Const, Expr, Load, Op, Var
from anycann.te.nest import Nest, ReduceStage
from anycann.te.tensor import Compute, Reduction, Tensor

Number = float | int | bool
Memory = Mapping[Tensor, np.ndarray]

MEANING: dict[str, Callable[..., Number]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "exp": math.exp,
}
START: dict[str, Number] = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf}
COMBINE: dict[str, Callable[[Number, Number], Number]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": max,
    "min": min,
}


def value_of(expr: Expr, at: Mapping[Var, int], memory: Memory, registers: Mapping[Tensor, Number] | None = None) -> Number:
    """The value of `expr` with the variables at these values; `registers` holds reductions that a nest has finished."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return at[expr]
    if isinstance(expr, Load):
        if registers is not None and expr.tensor in registers:
            return registers[expr.tensor]
        index = tuple(int(value_of(i, at, memory, registers)) for i in expr.indices)
        assert all(0 <= i < extent for i, extent in zip(index, expr.tensor.shape, strict=True)), f"{index} of {expr.tensor.shape}"
        return element(expr.tensor, index, memory)
    assert isinstance(expr, Op)
    if expr.name == "select":
        condition, a, b = expr.operands
        return value_of(a if value_of(condition, at, memory, registers) else b, at, memory, registers)
    return MEANING[expr.name](*(value_of(operand, at, memory, registers) for operand in expr.operands))


def element(tensor: Tensor, index: Sequence[int], memory: Memory) -> Number:
    """One element of a tensor, computed from its definition."""
    if not isinstance(tensor, Compute | Reduction):
        return memory[tensor][tuple(index)].item()
    at = {axis: i for axis, i in zip(tensor.axes, index, strict=True) if isinstance(axis, Var)}
    if isinstance(tensor, Compute):
        return value_of(tensor.body, at, memory)
    total = START[tensor.kind]
    for inner in places(tensor.reduce_axes):
        total = COMBINE[tensor.kind](total, value_of(tensor.body, {**at, **inner}, memory))
    return total


def whole(tensor: Tensor, memory: Memory) -> np.ndarray:
    """All elements."""
    values = [element(tensor, index, memory) for index in np.ndindex(*tensor.shape)]
    return np.array(values, np.float64).reshape(tensor.shape)


def places(variables: Sequence[Var]) -> list[dict[Var, int]]:
    """Every assignment of the variables."""
    return [dict(zip(variables, values, strict=True)) for values in itertools.product(*(range(v.extent) for v in variables))]


def run_nest(nest: Nest, outputs: Sequence[Tensor], memory: Memory) -> list[np.ndarray]:
    """What a nest computes, loop by loop. An element nobody writes, or that is written twice, is noticed."""
    results = [np.full(tensor.shape, np.nan) for tensor in outputs]
    for outer in places(nest.outer):
        registers: dict[Tensor, Number] = {}
        for stage in nest.stages:
            if isinstance(stage, ReduceStage):
                total = START[stage.tensor.kind]
                for inner in places(stage.over):
                    total = COMBINE[stage.tensor.kind](total, value_of(stage.body, {**outer, **inner}, memory, registers))
                registers[stage.tensor] = total
                continue
            for inner in places(stage.over):
                at = {**outer, **inner}
                index = tuple(int(value_of(i, at, memory, registers)) for i in stage.index)
                assert math.isnan(results[stage.output][index]), f"element {index} of output {stage.output} is written twice"
                results[stage.output][index] = value_of(stage.body, at, memory, registers)
    return results
