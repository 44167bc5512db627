"""Operators by Ascend's names compute what numpy says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
import math

import numpy as np
import pytest

from anycann.frontends.ascend_ops.definition import TABLE
from anycann.frontends.ascend_ops.graph import inferred_shapes, operator_graph
from anycann.om.operator_spec import OperandSpec, OperatorError, OperatorSpec, from_json, to_json
from anycann.session import InferenceSession, SessionOptions

RANDOM = np.random.default_rng(20)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (RANDOM.random(shape) * 4 - 2).astype(dtype)


def integers(*shape: int, least: int = 1, most: int = 9, dtype: str = "int32") -> np.ndarray:
    return RANDOM.integers(least, most, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """An operator, its inputs (`known`: the numbers of those that are constants), and what comes out."""

    op: str
    inputs: tuple[np.ndarray, ...]
    expected: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    attributes: dict[str, object] = field(default_factory=dict)
    known: tuple[int, ...] = ()
    formats: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.op

    def outputs(self) -> tuple[np.ndarray, ...]:
        found = self.expected(*self.inputs)
        return found if isinstance(found, tuple) else (found,)

    def spec(self) -> OperatorSpec:
        formats = (*self.formats, *["ND"] * 8)
        inputs = tuple(
            OperandSpec(a.dtype.name, a.shape, formats[n], (), tuple(a.reshape(-1).tolist()) if n in self.known else None)
            for n, a in enumerate(self.inputs)
        )
        return OperatorSpec(self.op, inputs, tuple(OperandSpec(a.dtype.name, a.shape) for a in self.outputs()), self.attributes)


def reference_convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """3x3 weights, stride 1, one row and column of zeros around."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def nhwc(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def blocked(x: np.ndarray) -> np.ndarray:
    """A matrix of bytes in FRACTAL_NZ, with zeros behind its ends."""
    whole = np.pad(x, ((0, -x.shape[0] % 16), (0, -x.shape[1] % 32)))
    return np.ascontiguousarray(whole.reshape(whole.shape[0] // 16, 16, -1, 32).transpose(2, 0, 1, 3))


BYTES = integers(5, 10, least=-99, dtype="int8")
X, Y, IMAGE, WEIGHTS = floats(3, 5), floats(3, 5), floats(2, 3, 7, 6), floats(4, 3, 3, 3)
ONES = {"strides": [1, 1, 1, 1], "pads": [1, 1, 1, 1]}
CASES = [
    Case("Add", (integers(8, 16), integers(8, 16)), lambda a, b: a + b),
    Case("RealDiv", (X, Y), lambda a, b: a / b),
    Case("FloorDiv", (integers(7, least=-9), integers(7)), lambda a, b: a // b),
    Case("FloorDiv", (X, Y), lambda a, b: np.floor(a / b)),
    Case("FloorMod", (integers(9, least=-9), integers(9)), lambda a, b: a % b),
    Case("DivNoNan", (X, np.where(Y > 0, Y, 0)), lambda a, b: np.where(b == 0, 0, a / np.where(b == 0, 1, b))),
    Case("Maximum", (X, Y), np.maximum),
    Case("SquaredDifference", (X, Y), lambda a, b: (a - b) ** 2),
    Case("NotEqual", (integers(9), integers(9)), np.not_equal),
    Case("GreaterEqual", (X, Y), np.greater_equal),
    Case("LogicalAnd", (X > 0, Y > 0), np.logical_and),
    Case("Axpy", (X, Y), lambda a, b: a + np.float32(0.5) * b, {"alpha": 0.5}),
    Case("Muls", (X,), lambda a: a * np.float32(3), {"value": 3.0}),
    Case("Adds", (X,), lambda a: a + np.float32(3), {"value": 3.0}),
    Case("Square", (X,), np.square),
    Case("Rsqrt", (np.abs(X) + 1,), lambda a: 1 / np.sqrt(a)),
    Case("Exp", (X,), lambda a: np.exp(2 * a + 1).astype("f4"), {"scale": 2.0, "shift": 1.0}),
    Case("Log", (np.abs(X) + 1,), lambda a: np.log2(a), {"base": 2.0}),
    Case("Relu6", (X * 9,), lambda a: np.clip(a, 0, 6)),
    Case("Gelu", (X,), lambda a: (a * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))).astype("f4")),
    Case("LeakyRelu", (X,), lambda a: np.where(a < 0, a * np.float32(0.1), a), {"negative_slope": 0.1}),
    Case("Swish", (X,), lambda a: (a / (1 + np.exp(-a))).astype("f4")),
    Case("Select", (X > 0, X, Y), np.where),
    Case("Cast", (X,), lambda a: a.astype("int32"), {"dst_type": 3}),
    Case("Cast", (X,), lambda a: a.astype("float16"), {"dst_type": 1}),
    Case("BiasAdd", (IMAGE, floats(3)), lambda a, b: a + b.reshape(-1, 1, 1), formats=("NCHW",)),
    Case("AddN", (X, Y, X), lambda *a: sum(a)),
    Case("MatMul", (floats(5, 3), floats(7, 3)), lambda a, b: a @ b.T, {"transpose_x2": True}),
    Case("MatMulV2", (floats(5, 3), floats(3, 7), floats(7)), lambda a, b, c: a @ b + c),
    Case("MatMulV2", (floats(5, 3, dtype="float16"), floats(3, 7, dtype="float16")), lambda a, b: a.astype("f4") @ b.astype("f4")),
    Case("BatchMatMul", (floats(2, 3, 5), floats(2, 3, 7)), lambda a, b: a.transpose(0, 2, 1) @ b, {"adj_x1": True}),
    Case(
        "GEMM",
        (integers(5, 4, least=-99, dtype="int8"), integers(4, 6, dtype="int8"), integers(5, 6), integers(1), integers(1)),
        lambda a, b, c, alpha, beta: alpha * (a.astype("int32") @ b.astype("int32")) + beta * c,
    ),
    Case("GEMM", (X, Y.T.copy(), floats(3), floats(1), floats(1)), lambda a, b, c, alpha, beta: alpha * (a @ b) + beta * c),
    Case(
        "GEMM",
        (blocked(BYTES), blocked(BYTES.T), integers(5, 5), integers(1), integers(1)),
        lambda a, b, c, alpha, beta: alpha * (BYTES.astype("int32") @ BYTES.T.astype("int32")) + beta * c,
        formats=("FRACTAL_NZ", "FRACTAL_NZ"),
    ),
    Case("Conv2D", (IMAGE, WEIGHTS), reference_convolution, ONES, formats=("NCHW", "NCHW")),
    Case(
        "Conv2D",
        (nhwc(IMAGE), np.ascontiguousarray(WEIGHTS.transpose(2, 3, 1, 0))),
        lambda x, w: nhwc(reference_convolution(IMAGE, WEIGHTS)),
        ONES,
        formats=("NHWC", "HWCN"),
    ),
    Case(
        "MaxPool",
        (nhwc(IMAGE),),
        lambda x: x[:, :6].reshape(2, 3, 2, 3, 2, 3).max((2, 4)),
        {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
        formats=("NHWC",),
    ),
    Case("SoftmaxV2", (X,), lambda a: softmax(a, 0), {"axes": [0]}),
    Case("ReduceSumD", (IMAGE,), lambda a: a.sum((1, 3)), {"axes": [1, 3]}),
    Case("ReduceMean", (X, ints(-1)), lambda a, axes: a.mean(1, keepdims=True), {"keep_dims": True}, (1,)),
    Case("ReduceAnyD", (X > 1.5,), lambda a: a.any(0), {"axes": [0]}),
    Case("ArgMaxD", (X,), lambda a: a.argmax(1).astype("int32"), {"dimension": 1, "dtype": 3}),
    Case("ArgMaxV2", (X, ints(0)), lambda a, axis: a.argmax(0), known=(1,)),
    Case("ArgMaxWithValue", (X,), lambda a: (a.argmax(1).astype("int32"), a.max(1)), {"dimension": 1}),
    Case("TopKD", (X,), lambda a: (np.sort(a)[:, :-3:-1], np.argsort(a)[:, :-3:-1].astype("int32")), {"k": 2}),
    Case("Sort", (X,), lambda a: (np.sort(a, 0), np.argsort(a, 0).astype("int32")), {"axis": 0}),
    Case("CumsumD", (X,), lambda a: a.cumsum(1), {"axis": 1}),
    Case("TransposeD", (IMAGE,), lambda a: a.transpose(3, 1, 0, 2), {"perm": [3, 1, 0, 2]}),
    Case("ConcatD", (X, Y), lambda *a: np.concatenate(a, 1), {"concat_dim": 1, "N": 2}),
    Case("Pack", (X, Y), lambda *a: np.stack(a, 1), {"axis": 1}),
    Case("Unpack", (X,), lambda a: tuple(a), {"num": 3}),
    Case("SplitD", (IMAGE,), lambda a: tuple(np.split(a, 3, 3)), {"split_dim": 3, "num_split": 3}),
    Case("SplitVD", (X,), lambda a: (a[:, :1], a[:, 1:]), {"size_splits": [1, 4], "split_dim": 1, "num_split": 2}),
    Case("SliceD", (X,), lambda a: a[1:, 2:4], {"offsets": [1, 2], "size": [-1, 2]}),
    Case("StridedSliceD", (X,), lambda a: a[-1, ::2], {"begin": [-1, 3], "end": [0, 0], "strides": [1, 2], "begin_mask": 2, "end_mask": 2,
                                                         "shrink_axis_mask": 1}),
    Case("PadD", (X,), lambda a: np.pad(a, ((1, 0), (2, 3))), {"paddings": [[1, 0], [2, 3]]}),
    Case("GatherV2", (X, ints(4, 0), ints(1)), lambda a, i, axis: a[:, i], known=(2,)),
    Case("TileD", (X,), lambda a: np.tile(a, (2, 3)), {"multiples": [2, 3]}),
    Case("OneHotD", (integers(4, most=5), floats(1), floats(1)), lambda i, on, off: np.where(np.eye(5)[i] == 1, on, off), {"depth": 5}),
    Case("ReverseV2D", (X,), lambda a: a[:, ::-1], {"axis": [1]}),
    Case("ResizeNearestNeighborV2D", (IMAGE,), lambda a: a.repeat(2, 2).repeat(2, 3), {"size": [14, 12]}, formats=("NCHW",)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_computes_what_numpy_says(case: Case) -> None:
    session = InferenceSession(operator_graph(case.spec()).SerializeToString(), SessionOptions(poison=True))
    feeds = {f"x{n}": np.ascontiguousarray(a) for n, a in enumerate(case.inputs)}
    found = session.run(None, feeds)
    for value, expected in zip(found, case.outputs(), strict=True):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=2e-3 if expected.dtype == np.float16 else 2e-5, atol=1e-5)


FLOAT, OPEN, ONE = OperandSpec("float32", (3, 5)), OperandSpec("float32", (-1, 5)), OperandSpec("float32", (1,))
PICTURE, TAPS = OperandSpec("float32", (2, 3, 7, 6), "NCHW"), OperandSpec("float32", (3, 3, 3, 3), "NCHW")
BLOCKED = OperandSpec("float16", (1, 1, 16, 16), "FRACTAL_NZ")


@pytest.mark.parametrize(
    ("spec", "part", "text"),
    [
        (OperatorSpec("MatMulV", (FLOAT,), (FLOAT,)), "type", "operator MatMulV is not known; did you mean MatMul"),
        (OperatorSpec("Add", (FLOAT,), (FLOAT,)), "input", "Add has 1 inputs; accepted: x1, x2"),
        (OperatorSpec("Add", (FLOAT, OperandSpec("int32", (3, 5))), (FLOAT,)), "input", "input 1 (x2) is int32; accepted: float32"),
        (OperatorSpec("Add", (FLOAT, OperandSpec("float32", (3, 4))), (FLOAT,)), "input", "Add: Incompatible dimensions"),
        (
            OperatorSpec("Add", (FLOAT, FLOAT), (OperandSpec("float16", (3, 5)),)),
            "output",
            "output 0 is declared float16; it comes to float32",
        ),
        (OperatorSpec("Add", (FLOAT, FLOAT), (OperandSpec("float32", (5, 3)),)), "output", "declared [5, 3]; it comes to [3, 5]"),
        (OperatorSpec("Relu", (BLOCKED,), (BLOCKED,)), "input", "input 0 (x) is FRACTAL_NZ; accepted: ND"),
        (OperatorSpec("GEMM", (BLOCKED,) * 5, (BLOCKED,)), "input", "input 2 (c) is FRACTAL_NZ; accepted: ND"),
        (
            OperatorSpec("GEMM", (BLOCKED, BLOCKED, FLOAT, ONE, ONE), (FLOAT,), {"transpose_a": True}),
            "attribute",
            "transpose_a of an input in FRACTAL_NZ; accepted: False",
        ),
        (
            OperatorSpec("GEMM", (BLOCKED, BLOCKED, OPEN, ONE, ONE), (OPEN,)),
            "input",
            "input c is float32[-1, 5] ND; accepted: 2 known sizes, where a or b is in FRACTAL_NZ",
        ),
        (OperatorSpec("Muls", (FLOAT,), (FLOAT,)), "attribute", "Muls: attribute value is missing"),
        (OperatorSpec("Muls", (FLOAT,), (FLOAT,), {"valu": 1.0}), "attribute", "has no attribute valu; did you mean value?"),
        (OperatorSpec("Muls", (FLOAT,), (FLOAT,), {"value": "1"}), "attribute", "value is '1'; accepted: float"),
        (
            OperatorSpec("Conv2D", (PICTURE, TAPS), (PICTURE,), {"strides": [1, 1, 0, 0], "pads": [1, 1, 1, 1]}),
            "attribute",
            "'strides' is [0, 0]; 1 or more is accepted",  # ONNX's inference divides by them
        ),
        (OperatorSpec("Transpose", (FLOAT, OperandSpec("int32", (2,))), (FLOAT,)), "input", "perm must be known beforehand"),
    ],
)
def test_a_wrong_operator_is_refused_with_the_part_to_blame(spec: OperatorSpec, part: str, text: str) -> None:
    with pytest.raises(OperatorError) as caught:
        operator_graph(spec)
    assert (caught.value.part, text in str(caught.value)) == (part, True), str(caught.value)


def test_shapes_of_outputs_follow_from_inputs() -> None:
    unknown = (OperandSpec("float32", ()),)
    spec = OperatorSpec("MatMul", (FLOAT, OperandSpec("float32", (5, -1))), unknown)
    assert inferred_shapes(spec) == [(3, -1)]
    known = OperatorSpec("Tile", (FLOAT, OperandSpec("int32", (2,), constant=(2, 3))), unknown)
    assert inferred_shapes(known) == [(6, 15)]


def test_models_say_which_calls_they_are_for() -> None:
    model = OperatorSpec(
        "Muls", (OperandSpec("float32", (-1, 5), ranges=((1, 8), (5, 5))),), (OperandSpec("float32", (-1, 5)),), {"value": 0.1}
    )
    model = from_json(to_json(model), "here")
    call = OperatorSpec("Muls", (FLOAT,), (FLOAT,), {"value": float(np.float32(0.1))})
    assert model.difference(call) is None
    wide = OperandSpec("float32", (9, 5))
    assert model.difference(OperatorSpec("Muls", (wide,), (wide,), {"value": 0.1})) == (
        "input", "input 0 is float32[-1, 5] ND; asked for: float32[9, 5] ND"
    )  # fmt: skip
    assert model.difference(OperatorSpec("Muls", (FLOAT,), (FLOAT,), {"value": 0.2})) == (
        "attribute",
        "attribute value is 0.1; asked for: 0.2",
    )


def test_every_row_has_operands_and_a_builder() -> None:
    assert len(TABLE) > 150
    for name, kind in TABLE.items():
        assert kind.name == name
        assert kind.inputs
        assert all(operand.dtypes for operand in kind.inputs)
