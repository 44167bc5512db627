"""Operators that take and make quantised tensors, written out: what is known about dequantised operands then serves them too.

QLinearConv(x, w, b), QLinearAdd(y, c), QLinearMul(.., y) is a convolution, and one look into a table of bytes (`byte_functions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.quantised import BYTES
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node
from anycann.support.records import dataclass


@dataclass(frozen=True)
class _Form:
    """Where an operator `op_type` has its operands, each followed by scale and zero point, and the scale and zero point of its result.

    plain: operands before those, which are not quantised. bias: an int32 operand in units of both scales.
    """

    op_type: str
    operands: tuple[int, ...]
    result: int
    plain: tuple[int, ...] = ()
    bias: int | None = None


_MICROSOFT = {
    **{f"QLinear{name}": _Form(name, (0,), 3) for name in ("Sigmoid", "LeakyRelu", "Softmax", "AveragePool", "GlobalAveragePool")},
    **{f"QLinear{name}": _Form(name, (0, 3), 6) for name in ("Add", "Mul")},
    "QLinearReduceMean": _Form("ReduceMean", (0,), 3),
    "QLinearWhere": _Form("Where", (1, 4), 7, (0,)),
    "QLinearConcat": _Form("Concat", (), 0),
}
_ONNX = {"QLinearConv": _Form("Conv", (0, 3), 6, bias=8), "QLinearMatMul": _Form("MatMul", (0, 3), 6)}
_FORMS = {**{("com.microsoft", name): form for name, form in _MICROSOFT.items()}, **{("", name): form for name, form in _ONNX.items()}}
_WEIGHTS = {"Conv": 0, "MatMul": -1}  # whose second operand may have several scales, and the axis that they run along


class QuantisedOperator(Rule):
    """QLinearAdd(a, sa, za, b, sb, zb, sy, zy) -> QuantizeLinear(Add(DequantizeLinear(a, ..), DequantizeLinear(b, ..)), sy, zy)."""

    anchors = frozenset(_FORMS)
    early = True

    def check(self, node: ir.Node) -> str | None:
        form = _form(node)
        if node.attributes.get_int("channels_last", 0) != 0:
            return "its channels are last"
        if form.op_type == "Softmax" and node.attributes.get_int("opset", 13) < 13 and node.attributes.get_int("axis", -1) != -1:
            return "its softmax is over several axes"
        zero = constant_of(_operand(node, form.result + 1))
        if zero is None or zero.dtype not in BYTES:
            return "the zero point of its result is not known"
        sizes = {n: _size(node, n) for first in (*form.operands, form.result - 1) for n in (first + 1, first + 2)}
        if None in sizes.values():
            return "its scales or zero points are computed at run time"
        second = form.operands[1] if form.op_type in _WEIGHTS else None
        if any(size != 1 for n, size in sizes.items() if second is None or n not in (second + 1, second + 2)):
            return "an operand has several scales"
        if second is not None and any(_runs_along_axes(constant_of(_operand(node, second + n))) for n in (1, 2)):
            return "the scales of its weights run along several axes"
        if form.op_type == "Conv" and constant_of(node.inputs[form.operands[1]]) is None:
            return "its weights are computed at run time"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        form, name, like = _form(node), node.name or node.op_type, node.outputs[0]
        nodes: list[ir.Node] = []
        operands: list[ir.Value | None] = [node.inputs[number] for number in form.plain]
        for number in form.operands:
            nodes.append(_real(graph, node, number, _WEIGHTS.get(form.op_type, 0)))
            operands.append(nodes[-1].outputs[0])
        if form.bias is not None and _operand(node, form.bias) is not None:
            nodes.append(_bias(graph, node, form))
            operands.append(nodes[-1].outputs[0])
        if "axes" in node.attributes:
            operands.append(new_constant(graph, f"{name}/axes", np.array(node.attributes.get_ints("axes"), np.int64)))
        computed = new_node(form.op_type, operands, f"{name}/real", like)
        for attribute in node.attributes.values():
            if attribute.name not in ("channels_last", "opset", "axes"):
                computed.attributes.add(attribute)
        _is_real(computed)
        scale, zero = _scalars(graph, node, form.result)
        return [*nodes, computed, new_node("QuantizeLinear", [computed.outputs[0], scale, zero], name, like)]


def _form(node: ir.Node) -> _Form:
    """The form of a node; that of a Concat by its operands."""
    form = _FORMS[node.domain, node.op_type]
    return _Form("Concat", tuple(range(2, len(node.inputs), 3)), 0) if form.op_type == "Concat" else form


def _operand(node: ir.Node, number: int) -> ir.Value | None:
    return node.inputs[number] if number < len(node.inputs) else None


def _size(node: ir.Node, number: int) -> int | None:
    """How many elements a scale or a zero point has, one that is left out 1; None if they are not known."""
    value = _operand(node, number)
    known = constant_of(value)
    return 1 if value is None else None if known is None else known.size


def _runs_along_axes(known: np.ndarray | None) -> bool:
    """True if a scale or a zero point has another axis than the last one: those of a stack of matrices may."""
    return known is not None and known.size > 1 and known.size != known.shape[-1]


def _scale(value: ir.Value | None) -> np.ndarray:
    """A known scale in single precision, of one axis or none."""
    known = constant_of(value)
    assert known is not None
    return known.astype(np.float32).reshape(-1 if known.size > 1 else ())


def _scalars(graph: ir.Graph, node: ir.Node, scale: int) -> tuple[ir.Value, ir.Value]:
    """A scale and its zero point, without axes."""
    zero = constant_of(_operand(node, scale + 1))
    assert zero is not None
    scalars = _scale(node.inputs[scale]), zero.reshape(())
    return new_constant(graph, f"{node.name}/{scale}", scalars[0]), new_constant(graph, f"{node.name}/{scale + 1}", scalars[1])


def _real(graph: ir.Graph, node: ir.Node, number: int, axis: int) -> ir.Node:
    """The DequantizeLinear of an operand; several scales run along `axis`."""
    source, name = node.inputs[number], f"{node.name}/{number}"
    zero = constant_of(_operand(node, number + 2))
    assert source is not None
    parameters = [_scale(node.inputs[number + 1]), *([] if zero is None else [zero])]
    several = max(each.size for each in parameters)
    shape = (several,) if several > 1 else ()
    values = [new_constant(graph, f"{name}/{n}", np.resize(each, shape)) for n, each in enumerate(parameters)]
    real = new_node("DequantizeLinear", [source, *values], f"{name}/real", source, {"axis": axis} if shape else {})
    _is_real(real)
    return real


def _bias(graph: ir.Graph, node: ir.Node, form: _Form) -> ir.Node:
    """The bias by the scales of both operands."""
    assert form.bias is not None
    source, scales = node.inputs[form.bias], [_scale(node.inputs[number + 1]) for number in form.operands]
    assert source is not None
    scale = scales[0] * scales[1]
    value = new_constant(graph, f"{node.name}/bias/scale", np.asarray(scale, np.float32))
    real = new_node("DequantizeLinear", [source, value], f"{node.name}/bias/real", source, {"axis": 0} if scale.ndim else {})
    _is_real(real)
    return real


def _is_real(node: ir.Node) -> None:
    """The result of a node is float32, of a shape that is not known yet."""
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), None
