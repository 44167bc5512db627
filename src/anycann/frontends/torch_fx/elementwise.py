"""Operators that treat every element alike: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

from collections.abc import Sequence
import math

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, common_dtype, meta, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, Result, Translation, translation

# ---- one operand
SAME = {
    "relu": "Relu", "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "erf": "Erf", "sigmoid": "Sigmoid", "tanh": "Tanh", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "sign": "Sign", "reciprocal": "Reciprocal", "silu": "Swish", "mish": "Mish", "hardswish": "HardSwish",
}  # fmt: skip
FLOAT_ONLY = frozenset({"floor", "ceil", "round"})


def _same(op_type: str, float_only: bool) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        if float_only and not call.result.dtype.is_floating_point:
            return b.op("Identity", b.value(call.self))
        return b.op(op_type, b.value(call.self, call.result.dtype))

    return translate


for _name, _op_type in SAME.items():
    translation(f"{_name}.default")(_same(_op_type, _name in FLOAT_ONLY))


@translation("rsqrt.default")
def _rsqrt(b: Builder, call: Call) -> ir.Value:
    return b.op("Reciprocal", b.op("Sqrt", b.value(call.self, call.result.dtype)))


@translation("square.default")
def _square(b: Builder, call: Call) -> ir.Value:
    x = b.value(call.self, call.result.dtype)
    return b.op("Mul", x, x)


@translation("exp2.default")
def _exp2(b: Builder, call: Call) -> ir.Value:
    x = b.value(call.self, call.result.dtype)
    return b.op("Exp", b.op("Mul", x, b.scalar(math.log(2.0), call.result.dtype)))


@translation("log1p.default")
def _log1p(b: Builder, call: Call) -> ir.Value:
    """log(1 + x) by the sum that was rounded: log(u) * x / (u - 1), which is exact where u is 1 + x but for its last bit."""
    dtype = call.result.dtype
    x, one = b.value(call.self, dtype), b.scalar(1, dtype)
    total = b.op("Add", x, one)
    corrected = b.op("Mul", b.op("Log", total), b.op("Div", x, b.op("Sub", total, one)))
    corrected = b.op("Where", b.op("IsInf", total), b.op("Log", total), corrected)
    return b.op("Where", b.op("Equal", total, one), x, corrected)


@translation("expm1.default")
def _expm1(b: Builder, call: Call) -> ir.Value:
    """exp(x) - 1 by the power that was rounded: (u - 1) * x / log(u)."""
    dtype = call.result.dtype
    x, one = b.value(call.self, dtype), b.scalar(1, dtype)
    power = b.op("Exp", x)
    less = b.op("Sub", power, one)
    usual = b.op("Less", b.op("Abs", x), one)
    corrected = b.op("Mul", less, b.op("Div", x, b.op("Log", power)))
    return b.op("Where", b.op("Equal", power, one), x, b.op("Where", usual, corrected, less))


@translation("trunc.default")
def _trunc(b: Builder, call: Call) -> ir.Value:
    x = b.value(call.self)
    return b.op("Mul", b.op("Sign", x), b.op("Floor", b.op("Abs", x))) if call.result.dtype.is_floating_point else b.op("Identity", x)


@translation("logical_not.default")
def _logical_not(b: Builder, call: Call) -> ir.Value:
    return b.op("Not", b.value(call.self, torch.bool))


@translation("bitwise_not.default")
def _bitwise_not(b: Builder, call: Call) -> ir.Value:
    return b.op("Not" if call.result.dtype == torch.bool else "BitwiseNot", b.value(call.self))


def _float_test(op_type: str) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        if not meta(call.self).dtype.is_floating_point:
            return b.full(False, shape_of(call.self), torch.bool)
        return b.op(op_type, b.value(call.self))

    return translate


translation("isnan.default")(_float_test("IsNaN"))
translation("isinf.default")(_float_test("IsInf"))


@translation("gelu.default")
def _gelu(b: Builder, call: Call) -> ir.Value:
    return b.op("Gelu", b.value(call.self), approximate=call.approximate)


@translation("hardsigmoid.default")
def _hardsigmoid(b: Builder, call: Call) -> ir.Value:
    return b.op("HardSigmoid", b.value(call.self), alpha=1.0 / 6.0, beta=0.5)


@translation("leaky_relu.default")
def _leaky_relu(b: Builder, call: Call) -> ir.Value:
    return b.op("LeakyRelu", b.value(call.self), alpha=float(call.negative_slope))


@translation("elu.default")
def _elu(b: Builder, call: Call) -> ir.Value:
    if call.scale != 1 or call.input_scale != 1:
        raise NotTranslated("elu with scales")
    return b.op("Elu", b.value(call.self), alpha=float(call.alpha))


@translation("softplus.default")
def _softplus(b: Builder, call: Call) -> ir.Value:
    if call.beta != 1:
        raise NotTranslated("softplus with beta")
    x, dtype = b.value(call.self), call.result.dtype
    return b.op("Where", b.op("Greater", x, b.scalar(call.threshold, dtype)), x, b.op("Softplus", x))


@translation("log_sigmoid_forward.default")
def _log_sigmoid(b: Builder, call: Call) -> Sequence[ir.Value]:
    """The result, and what PyTorch keeps for the gradient on a CPU."""
    x = b.value(call.self)
    return [b.op("Neg", b.op("Softplus", b.op("Neg", x))), b.op("Exp", b.op("Neg", b.op("Abs", x)))]


@translation("hardtanh.default")
def _hardtanh(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    return b.op("Clip", b.value(call.self), b.scalar(call.min_val, dtype), b.scalar(call.max_val, dtype))


@translation("clamp.default", "clamp.Tensor")
def _clamp(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    x, low, high = b.value(call.self, dtype), b.optional(call.min, dtype), b.optional(call.max, dtype)
    if not any(isinstance(bound, torch.fx.Node) for bound in (call.min, call.max)):
        return b.op("Clip", x, low, high)
    x = x if low is None else b.op("Max", x, low)
    return x if high is None else b.op("Min", x, high)


@translation("clamp_min.default")
def _clamp_min(b: Builder, call: Call) -> ir.Value:
    return b.op("Clip", b.value(call.self, call.result.dtype), b.value(call.min, call.result.dtype))


@translation("clamp_max.default")
def _clamp_max(b: Builder, call: Call) -> ir.Value:
    return b.op("Clip", b.value(call.self, call.result.dtype), None, b.value(call.max, call.result.dtype))


@translation("_prelu_kernel.default")
def _prelu(b: Builder, call: Call) -> ir.Value:
    return b.op("PRelu", b.value(call.self), b.value(call.weight))


# ---- two operands
def _binary(op_type: str) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        dtype = call.result.dtype
        return b.op(op_type, b.value(call.self, dtype), b.value(call.other, dtype))

    return translate


def _with_logic(op_type: str, logical: str) -> Translation:
    """An operator that has another name for conditions."""

    def translate(b: Builder, call: Call) -> Result:
        return _binary(logical if call.result.dtype == torch.bool else op_type)(b, call)

    return translate


translation("mul.Tensor", "mul.Scalar")(_with_logic("Mul", "And"))
translation("div.Tensor", "div.Scalar", "true_divide.Tensor")(_binary("Div"))
translation("maximum.default")(_with_logic("Max", "Or"))
translation("minimum.default")(_with_logic("Min", "And"))
for _name in ("and", "or", "xor"):
    translation(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar")(_with_logic(f"Bitwise{_name.title()}", _name.title()))


def _scaled(b: Builder, argument: object, alpha: float, dtype: torch.dtype) -> ir.Value:
    if isinstance(argument, int | float):
        return b.scalar(argument * alpha, dtype)
    value = b.value(argument, dtype)
    return value if alpha == 1 else b.op("Mul", value, b.scalar(alpha, dtype))


@translation("add.Tensor", "add.Scalar")
def _add(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    if dtype == torch.bool:
        return b.op("Or", b.value(call.self), b.value(call.other))
    return b.op("Add", b.value(call.self, dtype), _scaled(b, call.other, call.alpha, dtype))


@translation("sub.Tensor", "sub.Scalar")
def _sub(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    return b.op("Sub", b.value(call.self, dtype), _scaled(b, call.other, call.alpha, dtype))


@translation("rsub.Tensor", "rsub.Scalar")
def _rsub(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    return b.op("Sub", b.value(call.other, dtype), _scaled(b, call.self, call.alpha, dtype))


@translation("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(b: Builder, call: Call) -> ir.Value:
    if call.rounding_mode is None:
        return b.op("Div", b.value(call.self, call.result.dtype), b.value(call.other, call.result.dtype))
    x, y, dtype = _wide_operands(b, call)
    if call.rounding_mode == "floor":
        found = _floor_divided(b, x, y, dtype)
    else:
        found = b.op("Div", x, y)
        found = b.op("Mul", b.op("Sign", found), b.op("Floor", b.op("Abs", found))) if dtype.is_floating_point else found
    return _in_result(b, found, call)


def _wide_operands(b: Builder, call: Call) -> tuple[ir.Value, ir.Value, torch.dtype]:
    """Both operands in the type that PyTorch computes quotients in before it rounds them: 32 bits for those of 16."""
    dtype = torch.float32 if call.result.dtype in (torch.float16, torch.bfloat16) else call.result.dtype
    return b.value(call.self, dtype), b.value(call.other, dtype), dtype


def _in_result(b: Builder, value: ir.Value, call: Call) -> ir.Value:
    return value if call.result.dtype not in (torch.float16, torch.bfloat16) else b.cast(value, call.result.dtype)


@translation("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(b: Builder, call: Call) -> ir.Value:
    return _in_result(b, _floor_divided(b, *_wide_operands(b, call)), call)


def _floor_divided(b: Builder, x: ir.Value, y: ir.Value, dtype: torch.dtype) -> ir.Value:
    """As PyTorch: x without what is left over, divided, is whole but for rounding; nothing goes into zero."""
    if not dtype.is_floating_point:
        return b.op("Div", b.op("Sub", x, b.op("Mod", x, y)), y)  # Mod has the sign of the divisor
    whole = b.op("Round", b.op("Div", b.op("Sub", x, _left_over(b, x, y, dtype)), y))
    return b.op("Where", b.op("Equal", y, b.scalar(0, dtype)), b.op("Div", x, y), whole)


@translation("remainder.Tensor", "remainder.Scalar")
def _remainder(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    x, y = b.value(call.self, dtype), b.value(call.other, dtype)
    return _left_over(b, x, y, dtype) if dtype.is_floating_point else b.op("Mod", x, y)


def _left_over(b: Builder, x: ir.Value, y: ir.Value, dtype: torch.dtype) -> ir.Value:
    """What is left of x over multiples of y, with the sign of y."""
    rest, zero = b.op("Mod", x, y, fmod=1), b.scalar(0, dtype)
    other_sign = b.op("Xor", b.op("Less", rest, zero), b.op("Less", y, zero))
    moved = b.op("And", other_sign, b.op("Not", b.op("Equal", rest, zero)))
    return b.op("Where", moved, b.op("Add", rest, y), rest)


@translation("fmod.Tensor", "fmod.Scalar")
def _fmod(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    return b.op("Mod", b.value(call.self, dtype), b.value(call.other, dtype), fmod=1)


@translation("pow.Tensor_Scalar")
def _pow_scalar(b: Builder, call: Call) -> ir.Value:
    dtype, exponent = call.result.dtype, call.exponent
    x = b.value(call.self, dtype)
    if exponent == 2:
        return b.op("Mul", x, x)
    if exponent == 3:
        return b.op("Mul", b.op("Mul", x, x), x)
    if exponent == 0.5:
        return b.op("Sqrt", x)
    return b.op("Reciprocal", x) if exponent == -1 else b.op("Pow", x, b.scalar(exponent, dtype))


@translation("pow.Tensor_Tensor", "pow.Scalar")
def _pow(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    if not dtype.is_floating_point:
        raise NotTranslated("powers of integers, which may overflow and have negative exponents")
    return b.op("Pow", b.value(call.self, dtype), b.value(call.exponent, dtype))


# ---- comparison and logic
def _comparison(op_type: str, opposite: bool = False) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        dtype = common_dtype(call.self, call.other)
        if dtype == torch.bool and op_type != "Equal":
            dtype = torch.uint8
        result = b.op(op_type, b.value(call.self, dtype), b.value(call.other, dtype))
        return b.op("Not", result) if opposite else result

    return translate


for _name, _op_type in (("eq", "Equal"), ("lt", "Less"), ("le", "LessOrEqual"), ("gt", "Greater"), ("ge", "GreaterOrEqual")):
    translation(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_op_type))
translation("ne.Tensor", "ne.Scalar")(_comparison("Equal", opposite=True))


def _logical(op_type: str) -> Translation:
    return lambda b, call: b.op(op_type, b.value(call.self, torch.bool), b.value(call.other, torch.bool))


for _name in ("and", "or", "xor"):
    translation(f"logical_{_name}.default")(_logical(_name.title()))


# ---- three operands
@translation("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    return b.op("Where", b.value(call.condition, torch.bool), b.value(call.self, dtype), b.value(call.other, dtype))


@translation("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, call: Call) -> ir.Value:
    return b.op("Where", b.value(call.mask, torch.bool), b.value(call.value, call.result.dtype), b.value(call.self))


@translation("addcmul.default")
def _addcmul(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    product = b.op("Mul", b.value(call.tensor1, dtype), b.value(call.tensor2, dtype))
    return b.op("Add", b.value(call.self, dtype), b.op("Mul", product, b.scalar(call.value, dtype)) if call.value != 1 else product)


@translation("addcdiv.default")
def _addcdiv(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    quotient = b.op("Div", b.value(call.tensor1, dtype), b.value(call.tensor2, dtype))
    return b.op("Add", b.value(call.self, dtype), b.op("Mul", quotient, b.scalar(call.value, dtype)) if call.value != 1 else quotient)


@translation("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    start = b.value(call.self, dtype)
    return b.op("Add", start, b.op("Mul", b.value(call.weight, dtype), b.op("Sub", b.value(call.end, dtype), start)))


# ---- casts and copies
@translation("_to_copy.default", "prims.convert_element_type.default", "to.dtype")
def _to_copy(b: Builder, call: Call) -> ir.Value:
    source = call.self if hasattr(call, "self") else call.a
    if meta(source).dtype == call.result.dtype:
        return b.op("Identity", b.value(source))
    return b.cast(b.value(source), call.result.dtype)


@translation("clone.default", "detach.default", "alias.default", "lift_fresh_copy.default", "lift_fresh.default", "contiguous.default")
def _copy(b: Builder, call: Call) -> ir.Value:
    return b.op("Identity", b.value(call.self))


@translation("copy.default")
def _copied_over(b: Builder, call: Call) -> ir.Value:
    return b.op("Expand", b.value(call.src, call.result.dtype), b.integers(*call.result.shape))


@translation("fill.Scalar", "fill.Tensor")
def _fill(b: Builder, call: Call) -> ir.Value:
    return b.op("Expand", b.value(call.value, call.result.dtype), b.integers(*call.result.shape))
