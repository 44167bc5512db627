"""Elementwise operators: one number, two numbers, conditions, casts. They leave the order of axes as they find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import known_array
from anycann.frontends.tensorflow.definition import OPERATORS, Call, Convert, Result, operator
from anycann.frontends.tensorflow.layout import Tensor, channels_first, channels_last

Compute = Callable[..., ir.Value]


def elementwise(call: Call, compute: Compute, numbers: Sequence[int] | None = None) -> Tensor:
    """`compute(*operands)`, with channels first where they are so already."""
    tensors = [call.tensor(number) for number in (range(len(call.tensors)) if numbers is None else numbers)]
    operands = _all_first(call, tensors)
    if operands is not None:
        return Tensor(first=compute(*operands))
    return Tensor(last=compute(*(channels_last(call.builder, tensor) for tensor in tensors)))


def _all_first(call: Call, tensors: Sequence[Tensor]) -> list[ir.Value] | None:
    """The operands with channels first, if one of them is so and the others can be."""
    leading = next((tensor for tensor in tensors if tensor.first is not None), None)
    if leading is None or leading.shape is None:
        return None
    rank = len(leading.shape)
    operands = [_turned(call, tensor, rank) for tensor in tensors]
    return None if any(operand is None for operand in operands) else operands  # type: ignore[return-value]


def _turned(call: Call, tensor: Tensor, rank: int) -> ir.Value | None:
    """An operand beside a picture of `rank` axes: a picture, a number, or a row of channels."""
    if tensor.first is not None or tensor.shape is None:
        return tensor.first
    if len(tensor.shape) == rank:
        return channels_first(call.builder, tensor)
    value = channels_last(call.builder, tensor)
    if not tensor.shape:
        return value
    known = known_array(value)
    if known is not None:
        wide = known.reshape([1] * (rank - known.ndim) + list(known.shape))
        return call.constant(np.moveaxis(wide, -1, 1))
    return per_channel(call, value, rank) if len(tensor.shape) == 1 else None


def per_channel(call: Call, row: ir.Value, rank: int) -> ir.Value:
    """A row of numbers, one for each channel, beside a picture of `rank` axes with channels first."""
    return call.reshaped(row, [1, -1, *[1] * (rank - 2)])


def _named(op_type: str, **attributes: object) -> Convert:
    return lambda call: elementwise(call, lambda *operands: call.op(op_type, *operands, **attributes))


_SAME = """Abs Neg Exp Log Sqrt Reciprocal Floor Ceil Sign Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Sigmoid Relu Elu Selu
Softplus Softsign Erf Add Sub Mul Pow Less Greater Equal"""
for _name in _SAME.split():
    OPERATORS[_name] = _named(_name)
for _tensorflow, _onnx in (
    ("AddV2", "Add"), ("RealDiv", "Div"), ("Div", "Div"), ("LogicalAnd", "And"), ("LogicalOr", "Or"), ("LogicalNot", "Not"),
    ("LessEqual", "LessOrEqual"), ("GreaterEqual", "GreaterOrEqual"), ("Inv", "Reciprocal"), ("Rint", "Round"), ("Round", "Round"),
    ("IsNan", "IsNaN"), ("IsInf", "IsInf"), ("BitwiseAnd", "BitwiseAnd"), ("BitwiseOr", "BitwiseOr"), ("BitwiseXor", "BitwiseXor"),
    ("Invert", "BitwiseNot"), ("AddN", "Sum"),
):  # fmt: skip
    OPERATORS[_tensorflow] = _named(_onnx)
for _name in ("Mod", "TruncateMod"):
    OPERATORS[_name] = _named("Mod", fmod=1)


@operator("Maximum Minimum")
def _extreme(call: Call) -> Result:
    return elementwise(call, lambda a, b: call.op("Max" if call.node.op == "Maximum" else "Min", a, b))


# name -> the formula, given a function that makes nodes and the operands
_FORMULAS: dict[str, Compute] = {
    "Rsqrt": lambda call, x: call.op("Reciprocal", call.op("Sqrt", x)),
    "Square": lambda call, x: call.op("Mul", x, x),
    "Erfc": lambda call, x: call.op("Sub", call.like(1, x), call.op("Erf", x)),
    "Log1p": lambda call, x: call.op("Log", call.op("Add", x, call.like(1, x))),
    "Expm1": lambda call, x: call.op("Sub", call.op("Exp", x), call.like(1, x)),
    "Relu6": lambda call, x: call.op("Clip", x, call.like(0, x), call.like(6, x)),
    "ClipByValue": lambda call, x, least, most: call.op("Min", call.op("Max", x, least), most),
    "SquaredDifference": lambda call, a, b: _squared(call, call.op("Sub", a, b)),
    "NotEqual": lambda call, a, b: call.op("Not", call.op("Equal", a, b)),
    "FloorDiv": lambda call, a, b: _floor_divided(call, a, b),
    "FloorMod": lambda call, a, b: _floor_remainder(call, a, b),
    "TruncateDiv": lambda call, a, b: call.op("Div", a, b),
    "DivNoNan": lambda call, a, b: _unless_zero(call, b, lambda divisor: call.op("Div", a, divisor)),
    "MulNoNan": lambda call, a, b: call.op("Where", call.op("Equal", b, call.like(0, b)), call.like(0, b), call.op("Mul", a, b)),
    "Xdivy": lambda call, a, b: call.op("Where", call.op("Equal", a, call.like(0, a)), call.like(0, a), call.op("Div", a, b)),
    "Xlogy": lambda call, a, b: call.op(
        "Where", call.op("Equal", a, call.like(0, a)), call.like(0, a), call.op("Mul", a, call.op("Log", b))
    ),
    "IsFinite": lambda call, x: call.op("Not", call.op("Or", call.op("IsNaN", x), call.op("IsInf", x))),
    "OnesLike": lambda call, x: call.op("Expand", call.like(1, x), call.sizes(x)),
    "ZerosLike": lambda call, x: call.op("Expand", call.like(0, x), call.sizes(x)),
    "LeakyRelu": lambda call, x: call.op("LeakyRelu", x, alpha=float(call.attribute("alpha", 0.2))),
    "SelectV2": lambda call, condition, a, b: call.op("Where", condition, a, b),
}


def _formula(name: str) -> Convert:
    return lambda call: elementwise(call, lambda *operands: _FORMULAS[name](call, *operands))


for _name in _FORMULAS:
    OPERATORS[_name] = _formula(_name)


def _squared(call: Call, difference: ir.Value) -> ir.Value:
    return call.op("Mul", difference, difference)


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _floor_divided(call: Call, a: ir.Value, b: ir.Value) -> ir.Value:
    if _is_float(a):
        return call.op("Floor", call.op("Div", a, b))
    return call.op("Div", call.op("Sub", a, call.op("Mod", a, b)), b)


def _floor_remainder(call: Call, a: ir.Value, b: ir.Value) -> ir.Value:
    if not _is_float(a):
        return call.op("Mod", a, b)
    return call.op("Sub", a, call.op("Mul", _floor_divided(call, a, b), b))


def _unless_zero(call: Call, divisor: ir.Value, compute: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """What is computed, and 0 where the divisor is."""
    is_zero = call.op("Equal", divisor, call.like(0, divisor))
    return call.op("Where", is_zero, call.like(0, divisor), compute(call.op("Where", is_zero, call.like(1, divisor), divisor)))


@operator("Select")
def _select(call: Call) -> Result:
    """The condition may be a row beside operands of more axes: it then chooses whole rows."""
    if call.rank(0) == 1 and call.rank(1) > 1:
        condition = call.reshaped(call.value(0), [-1, *[1] * (call.rank(1) - 1)])
        return call.op("Where", condition, call.value(1), call.value(2))
    return elementwise(call, lambda condition, a, b: call.op("Where", condition, a, b))


@operator("Cast Bitcast")
def _cast(call: Call) -> Result:
    if call.node.op == "Bitcast":
        wanted = ir.DataType.from_numpy(call.dtype_of("type"))
        return elementwise(call, lambda x: call.op("BitCast", x, to=int(wanted)))
    return elementwise(call, lambda x: call.cast(x, call.dtype_of("DstT")))


@operator("Identity StopGradient PreventGradient CheckNumerics Snapshot Print PlaceholderWithDefault EnsureShape DebugIdentity")
def _handed_on(call: Call) -> Result:
    return call.tensor(0)


@operator("IdentityN")
def _all_handed_on(call: Call) -> Result:
    return call.tensors


@operator("BiasAdd BiasAddV1")
def _bias_add(call: Call) -> Result:
    convolution = call.tensor(0).any.producer()
    if convolution is not None and convolution.op_type == "Conv" and len(convolution.inputs) == 2 and call.is_only_reader(0):
        attributes = {name: attribute.value for name, attribute in convolution.attributes.items()}
        return call.as_picture(call.op("Conv", *convolution.inputs, call.value(1), **attributes))
    if call.channels_are_last:
        return elementwise(call, lambda x, bias: call.op("Add", x, bias))
    return call.op("Add", call.value(0), per_channel(call, call.value(1), call.rank(0)))
