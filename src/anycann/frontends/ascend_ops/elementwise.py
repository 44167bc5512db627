"""Operators that treat every element alike: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

import math

from anycann.frontends.ascend_ops.builder import Builder, onnx_dtype
from anycann.frontends.ascend_ops.definition import Build, Required, operator

# aclDataType, which attributes of dtypes use
DTYPES: dict[int, str] = {
    0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32", 9: "int64", 10: "uint64",
    11: "float64", 12: "bool", 27: "bfloat16",
}  # fmt: skip


def dtype_of(b: Builder, name: str) -> str:
    """The dtype that an attribute says. Raises OperatorError for an unknown number."""
    found = DTYPES.get(int(b[name]))
    if found is None:
        b.fail("attribute", f"{name} is {b[name]}; accepted: {', '.join(f'{number} ({dtype})' for number, dtype in DTYPES.items())}")
        raise AssertionError
    return found


def _same(op_type: str) -> Build:
    """One ONNX node that takes the inputs as they are."""
    return lambda b: b.node(op_type, *(b.input(operand.name) for operand in b.kind.inputs if b.has(operand.name)))


# ---- two operands
for _names, _onnx in (("Add AddV2", "Add"), ("Sub", "Sub"), ("Mul", "Mul"), ("Pow", "Pow"), ("Maximum", "Max"), ("Minimum", "Min")):
    operator(_names, "x1:T x2:T", _same(_onnx))
operator("RealDiv Div", "x1:T x2:T", _same("Div"))
operator("Mod", "x1:T x2:T", lambda b: b.node("Mod", b.input("x1"), b.input("x2"), fmod=1))
for _names, _onnx in (
    ("Equal", "Equal"),
    ("Less", "Less"),
    ("Greater", "Greater"),
    ("LessEqual", "LessOrEqual"),
    ("GreaterEqual", "GreaterOrEqual"),
):
    operator(_names, "x1:T x2:T", _same(_onnx), group="any" if _names == "Equal" else "number")
operator("NotEqual", "x1:T x2:T", lambda b: b.node("Not", b.node("Equal", b.input("x1"), b.input("x2"))), group="any")
operator("LogicalAnd", "x1:bool x2:bool", _same("And"))
operator("LogicalOr", "x1:bool x2:bool", _same("Or"))
operator("LogicalNot", "x:bool", _same("Not"))
for _names, _onnx in (("BitwiseAnd", "BitwiseAnd"), ("BitwiseOr", "BitwiseOr"), ("BitwiseXor", "BitwiseXor")):
    operator(_names, "x1:T x2:T", _same(_onnx), group="integer")
operator("Invert", "x:T", _same("BitwiseNot"), group="integer")


def _difference(b: Builder) -> str:
    return b.node("Sub", b.input("x1"), b.input("x2"))


def _squared_difference(b: Builder) -> str:
    difference = _difference(b)
    return b.node("Mul", difference, difference)


def _floor_div(b: Builder) -> str:
    quotient = b.node("Div", b.input("x1"), b.input("x2"))
    if b.operand("x1").dtype in ("float32", "float16", "bfloat16", "float64"):
        return b.node("Floor", quotient)
    remainder = b.node("Mod", b.input("x1"), b.input("x2"))  # of integers: with the sign of the divisor
    return b.node("Div", b.node("Sub", b.input("x1"), remainder), b.input("x2"))


def _floor_mod(b: Builder) -> str:
    if b.operand("x1").dtype not in ("float32", "float16", "bfloat16", "float64"):
        return b.node("Mod", b.input("x1"), b.input("x2"))
    whole = b.node("Floor", b.node("Div", b.input("x1"), b.input("x2")))
    return b.node("Sub", b.input("x1"), b.node("Mul", whole, b.input("x2")))


def _div_no_nan(b: Builder) -> str:
    zero = b.like(0, "x2")
    is_zero = b.node("Equal", b.input("x2"), zero)
    safe = b.node("Where", is_zero, b.like(1, "x2"), b.input("x2"))
    return b.node("Where", is_zero, zero, b.node("Div", b.input("x1"), safe))


operator("SquaredDifference", "x1:T x2:T", _squared_difference)
operator("FloorDiv", "x1:T x2:T", _floor_div)
operator("FloorMod", "x1:T x2:T", _floor_mod)
operator("DivNoNan", "x1:T x2:T", _div_no_nan, group="float")
operator(
    "Axpy",
    "x1:T x2:T",
    lambda b: b.node("Add", b.input("x1"), b.node("Mul", b.input("x2"), b.like(b["alpha"], "x2"))),
    alpha=Required("float"),
)
operator("Muls", "x:T", lambda b: b.node("Mul", b.input("x"), b.like(b["value"], "x")), value=Required("float"))
operator("Adds", "x:T", lambda b: b.node("Add", b.input("x"), b.like(b["value"], "x")), value=Required("float"))

# ---- one operand
_REAL = "Sqrt Sigmoid Tanh Softsign Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Reciprocal Mish HardSwish"
for _name in _REAL.split():
    operator(_name, "x:T", _same(_name), group="float")
for _name in ("Abs", "Neg", "Sign", "Relu", "Floor", "Ceil"):
    operator(_name, "x:T", _same(_name))
operator("Round Rint", "x:T", _same("Round"), group="float")
operator("Softplus", "x:T", _same("Softplus"), group="float")
operator("Square", "x:T", lambda b: b.node("Mul", b.input("x"), b.input("x")))
operator("Rsqrt", "x:T", lambda b: b.node("Reciprocal", b.node("Sqrt", b.input("x"))), group="float")
operator("Expm1", "x:T", lambda b: b.node("Sub", b.node("Exp", b.input("x")), b.like(1, "x")), group="float")
operator("Log1p", "x:T", lambda b: b.node("Log", b.node("Add", b.input("x"), b.like(1, "x"))), group="float")
operator("IsNan", "x:float", _same("IsNaN"))
operator("IsInf", "x:float", _same("IsInf"))
operator("Gelu", "x:T", lambda b: b.node("Gelu", b.input("x"), approximate="tanh"), group="float")
operator("GeluV2", "x:T", lambda b: b.node("Gelu", b.input("x"), approximate=str(b["approximate"])), group="float", approximate="none")
operator(
    "FastGelu",
    "x:T",
    lambda b: b.node("Mul", b.input("x"), b.node("Sigmoid", b.node("Mul", b.input("x"), b.like(1.702, "x")))),
    group="float",
)
operator("Relu6", "x:T", lambda b: b.node("Clip", b.input("x"), b.like(0, "x"), b.like(6, "x")))
operator("Elu", "x:T", lambda b: b.node("Elu", b.input("x"), alpha=float(b["alpha"])), group="float", alpha=1.0)
operator("Selu", "x:T", _same("Selu"), group="float")
operator(
    "LeakyRelu", "x:T", lambda b: b.node("LeakyRelu", b.input("x"), alpha=float(b["negative_slope"])), group="float", negative_slope=0.0
)
operator("Swish", "x:T", lambda b: b.node("Mul", b.input("x"), b.node("Sigmoid", b.node("Mul", b.input("x"), b.like(b["scale"], "x")))),
         group="float", scale=1.0)  # fmt: skip
operator("HardSigmoid", "x:T", lambda b: b.node("HardSigmoid", b.input("x"), alpha=float(b["alpha"]), beta=float(b["beta"])), group="float",
         alpha=0.16666666, beta=0.5)  # fmt: skip
operator("ZerosLike", "x:T", lambda b: b.node("Mul", b.input("x"), b.like(0, "x")), group="integer")
operator("ClipByValue", "x:T min:T max:T", lambda b: b.node("Min", b.node("Max", b.input("x"), b.input("min")), b.input("max")))


def _scaled(b: Builder) -> str:
    """scale * x + shift, as far as it is not x itself."""
    value = b.input("x")
    if b["scale"] != 1:
        value = b.node("Mul", value, b.like(b["scale"], "x"))
    return b.node("Add", value, b.like(b["shift"], "x")) if b["shift"] else value


def _exp(b: Builder) -> str:
    scaled = _scaled(b)
    return b.node("Exp", scaled if b["base"] == -1 else b.node("Mul", scaled, b.like(math.log(b["base"]), "x")))


def _log(b: Builder) -> str:
    natural = b.node("Log", _scaled(b))
    return natural if b["base"] == -1 else b.node("Mul", natural, b.like(1 / math.log(b["base"]), "x"))


operator("Exp", "x:T", _exp, group="float", base=-1.0, scale=1.0, shift=0.0)
operator("Log", "x:T", _log, group="float", base=-1.0, scale=1.0, shift=0.0)
operator("Power", "x:T", lambda b: b.node("Pow", _scaled(b), b.like(b["power"], "x")), group="float", power=1.0, scale=1.0, shift=0.0)

# ---- three and more
operator("Select SelectV2", "condition:bool x1:T x2:T", _same("Where"), group="any")
operator("MaskedFill", "x:T mask:bool value:T", lambda b: b.node("Where", b.input("mask"), b.input("value"), b.input("x")), group="any")
operator("AddN", "x*:T", lambda b: b.node("Sum", *b.rest), group="float", N=0)
operator("Lerp", "start:T end:T weight:T", lambda b: b.node(
    "Add", b.input("start"), b.node("Mul", b.input("weight"), b.node("Sub", b.input("end"), b.input("start")))), group="float")  # fmt: skip


def _add_scaled(op_type: str) -> Build:
    """input_data + value * (x1 op x2)."""
    return lambda b: b.node("Add", b.input("input_data"), b.node("Mul", b.input("value"), b.node(op_type, b.input("x1"), b.input("x2"))))


operator("Addcmul", "input_data:T x1:T x2:T value:T", _add_scaled("Mul"))
operator("Addcdiv", "input_data:T x1:T x2:T value:T", _add_scaled("Div"), group="float")


def _bias_add(b: Builder) -> str:
    channels_second = b.operand("x").format == "NCHW" or (b.operand("x").format == "ND" and b["data_format"] == "NCHW")
    bias = b.input("bias")
    if channels_second and b.rank("x") > 2:
        bias = b.node("Reshape", bias, b.constant([-1] + [1] * (b.rank("x") - 2)))
    return b.node("Add", b.input("x"), bias)


def _prelu(b: Builder) -> str:
    weight = b.input("weight")
    if b.rank("weight") == 1 and b.rank("x") > 2:
        weight = b.node("Reshape", weight, b.constant([-1] + [1] * (b.rank("x") - 2)))
    return b.node("PRelu", b.input("x"), weight)


operator("BiasAdd", "x:T bias:T", _bias_add, data_format="NHWC")
operator("PRelu", "x:T weight:T", _prelu, group="float")
operator(
    "Cast",
    "x:any",
    lambda b: b.node("Cast", b.input("x"), to=onnx_dtype(dtype_of(b, "dst_type"))),
    dst_type=Required("dtype"),
    truncate=False,
)
