"""GELU as exporters write it, five to nine nodes, is one function: it costs half of what its parts cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_node
from anycann.te import dtypes

_ROOT = math.sqrt(2 / math.pi)
# the value of `approximate`, and what the function is taken of, as a polynomial of x, by the function's operator
_FORMS = {"Erf": ("none", (0.0, math.sqrt(0.5))), "Tanh": ("tanh", (0.0, _ROOT, 0.0, 0.044715 * _ROOT))}
_SAME = 1e-6  # relative difference of coefficients: they are written with six digits and more
_DEGREE, _NODES = 3, 8  # of a polynomial, and to look back through for it


class GeluOfParts(Rule):
    """x * 0.5 * (Erf(x / sqrt(2)) + 1) -> Gelu(x); the form with Tanh of a cubic likewise; factors and terms in any order."""

    anchors = frozenset({("", "Mul")})

    def check(self, node: ir.Node) -> str | None:
        found = _parts(node)
        if found is None:
            return ""
        function, x = found
        type_ = static_type(node.outputs[0])
        if type_ is None or type_.dtype is not dtypes.float32 or static_type(x) != type_:
            return "it is not known to be float32 and of the shape of its operand"
        return None if _matches(function, x) else f"{function.op_type} is taken of something else"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        found = _parts(node)
        assert found is not None
        function, x = found
        return [new_node("Gelu", [x], node.name or "Gelu", node.outputs[0], {"approximate": _FORMS[function.op_type][0]})]


def _parts(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The node of erf or tanh, and x, if the product is x (f + 1) / 2."""
    scale, rest = _factors(node)
    for shifted, x in (rest, rest[::-1]) if len(rest) == 2 else ():
        function = _function_before(shifted)
        if function is not None:
            polynomial = _polynomial(shifted, function.outputs[0], _NODES)
            return (function, x) if polynomial is not None and _are_same([scale * c for c in polynomial], (0.5, 0.5)) else None
    return None


def _factors(node: ir.Node) -> tuple[float, list[ir.Value]]:
    """The known scalar and the other factors of a product of products, each of which only the next one reads."""
    scale, rest = 1.0, list[ir.Value]()
    for value in node.inputs:
        number, maker = _number(value), None if value is None else value.producer()
        if number is not None:
            scale *= number
        elif value is not None and maker is not None and (maker.domain, maker.op_type) == ("", "Mul") and _is_read_once(value):
            inner, others = _factors(maker)
            scale, rest = scale * inner, rest + others
        elif value is not None:
            rest.append(value)
    return scale, rest


def _function_before(value: ir.Value) -> ir.Node | None:
    """The Erf or Tanh that a value is a known multiple of, plus something known."""
    for _ in range(_DEGREE):
        maker = value.producer()
        if maker is None or maker.domain or not _is_read_once(value):
            return None
        if maker.op_type in _FORMS:
            return maker
        unknown = [operand for operand in maker.inputs if operand is not None and _number(operand) is None]
        if len(unknown) != 1:
            return None
        (value,) = unknown
    return None


def _matches(function: ir.Node, x: ir.Value) -> bool:
    (argument,) = function.inputs
    polynomial = None if argument is None else _polynomial(argument, x, _NODES)
    return polynomial is not None and _are_same(polynomial, _FORMS[function.op_type][1])


def _are_same(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=_SAME) for a, b in zip_longest(found, wanted, fillvalue=0.0))


def _polynomial(value: ir.Value, x: ir.Value, most: int) -> list[float] | None:
    """The coefficients, lowest first, of a value that is a polynomial of x, made by no more than `most` nodes in a row."""
    if value is x:
        return [0.0, 1.0]
    number, maker = _number(value), value.producer()
    if number is not None:
        return [number]
    if maker is None or maker.domain or most == 0 or maker.op_type not in ("Add", "Sub", "Mul", "Div", "Pow"):
        return None
    left, right = (None if operand is None else _polynomial(operand, x, most - 1) for operand in maker.inputs)
    if left is None or right is None:
        return None
    return _combined(maker.op_type, left, right)


def _combined(op_type: str, left: list[float], right: list[float]) -> list[float] | None:
    """The polynomial that an operation makes of two; None where it is none, or of a degree that is too high."""
    if op_type in ("Add", "Sub"):
        sign = 1.0 if op_type == "Add" else -1.0
        return [a + sign * b for a, b in zip_longest(left, right, fillvalue=0.0)]
    if op_type == "Mul":
        product = [float(c) for c in np.convolve(left, right)]
        return product if len(product) <= _DEGREE + 1 else None
    (number, *powers) = right
    if powers:
        return None
    if op_type == "Div":
        return [c / number for c in left] if number else None
    return [float(c) for c in np.polynomial.polynomial.polypow(left, int(number))] if number in range(1, _DEGREE + 1) else None


def _number(value: ir.Value | None) -> float | None:
    known = constant_of(value)
    return float(known.reshape(-1)[0]) if known is not None and known.size == 1 and known.dtype.kind in "fiu" else None


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()
