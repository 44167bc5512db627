"""Numpy meanings of operators outside the standard, and of standard ones that onnx.reference gets wrong, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from onnx import helper, numpy_helper
from onnx_models import MICROSOFT, assert_close, make_model, run_onnxruntime
import pytest

from anycann.graph.evaluate import evaluate_node, has_reference
from anycann.support.errors import ModelError, UnsupportedError


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bytes_(*shape: int, seed: int = 0, dtype: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@dataclass(frozen=True)
class Case:
    """One node; None is an absent operand. `constant` operands are initialisers, `tolerance` is relative and absolute."""

    op_type: str
    operands: tuple[np.ndarray | None, ...]
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: int = 1
    domain: str = MICROSOFT
    opset: int = 17
    constant: tuple[int, ...] = ()
    tolerance: float = 1e-5


X = floats(2, 3, 8)
SCALE, ZERO = np.float32(0.02), np.uint8(120)
QKV = (floats(2, 5, 8), floats(8, 24, seed=1), floats(24, seed=2))
HEADS = {"num_heads": 2}
LENGTHS = np.array([4, 2], np.int32)
GATES = (floats(5, 3, 4), floats(1, 24, 4, seed=1), floats(1, 24, 6, seed=2), floats(1, 48, seed=3))
LSTM_STATE = (np.array([5, 2, 3], np.int32), floats(1, 3, 6, seed=4), floats(1, 3, 6, seed=5), floats(1, 18, seed=6))
# Weights of 7 bits: beside whole bytes ONNX Runtime's sums of two products saturate at 16 bits on x86 without VNNI.
QUANTISED_LSTM = (
    floats(5, 3, 4),
    bytes_(1, 4, 24, dtype=np.int8) // 2,
    bytes_(1, 6, 24, seed=1, dtype=np.int8) // 2,
    floats(1, 48, seed=3),
    None,
    floats(1, 3, 6, seed=4),
    floats(1, 3, 6, seed=5),
    floats(1, 18, seed=6),
    np.array([0.01], np.float32),
    np.array([0], np.int8),
    np.array([0.02], np.float32),
    np.array([0], np.int8),
)
CACHE = (floats(16, 4, seed=8), floats(16, 4, seed=9))

CASES = {
    "gelu": Case("Gelu", (X,)),
    "gelu of a sum": Case("BiasGelu", (X, floats(8))),
    "fast gelu": Case("FastGelu", (X, floats(8)), tolerance=1e-4),
    "quick gelu": Case("QuickGelu", (X,), {"alpha": 1.3}),
    "matmul, both transposed": Case("FusedMatMul", (floats(3, 4, 5), floats(3, 6, 4)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    "matmul, batch axes moved": Case("FusedMatMul", (floats(3, 2, 4), floats(2, 4, 6)), {"transBatchA": 1}),
    "lstm with lengths, peepholes and a clip": Case("LSTM", (*GATES, *LSTM_STATE), {"hidden_size": 6, "clip": 0.7}, 3, ""),
    "lstm backwards, coupled gates": Case(
        "LSTM",
        (*GATES, *LSTM_STATE[:3]),
        {"hidden_size": 6, "direction": "reverse", "input_forget": 1},
        3,
        "",
    ),
    "lstm of other activations": Case(
        "LSTM",
        GATES,
        {
            "hidden_size": 6,
            "activations": ["HardSigmoid", "ScaledTanh", "LeakyRelu"],
            "activation_alpha": [0.3, 1.5, 0.2],
            "activation_beta": [0.4, 0.6],
        },
        3,
        "",
    ),
    "gru with lengths": Case(
        "GRU", (GATES[0], GATES[1][:, :18], GATES[2][:, :18], GATES[3][:, :36], *LSTM_STATE[:2]), {"hidden_size": 6}, 2, ""
    ),
    "gru, linear before reset": Case(
        "GRU", (GATES[0], GATES[1][:, :18], GATES[2][:, :18], GATES[3][:, :36]), {"hidden_size": 6, "linear_before_reset": 1}, 2, ""
    ),
    "rnn both ways": Case(
        "RNN",
        (GATES[0], floats(2, 6, 4), floats(2, 6, 6), floats(2, 12), LSTM_STATE[0]),
        {"hidden_size": 6, "direction": "bidirectional", "activations": ["Tanh", "Relu"]},
        2,
        "",
    ),
    "lstm of 8 bits": Case("DynamicQuantizeLSTM", QUANTISED_LSTM, {"hidden_size": 6}, 3, constant=(1, 2, 8, 9, 10, 11), tolerance=1e-4),
    "max pool with indices": Case(
        "MaxPool", (floats(2, 2, 5, 7),), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, 2, ""
    ),
    "max pool, rounded up and dilated": Case(
        "MaxPool",
        (floats(1, 2, 7, 8),),
        {"kernel_shape": [2, 3], "strides": [2, 3], "dilations": [2, 1], "ceil_mode": 1, "storage_order": 1},
        2,
        "",
    ),
    "attention": Case("Attention", QKV, HEADS),
    "attention with lengths": Case("Attention", (*QKV, LENGTHS), HEADS),
    "attention with a mask of keys": Case("Attention", (*QKV, np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32)), HEADS),
    "attention with a past, causal": Case("Attention", (*QKV, None, floats(2, 2, 2, 3, 4)), {**HEADS, "unidirectional": 1}, 2),
    "attention of 8 bits": Case(
        "QAttention",
        (bytes_(2, 5, 8), bytes_(8, 24, seed=1), floats(24), SCALE, np.float32(0.01), None, ZERO, np.uint8(128)),
        HEADS,
        tolerance=1e-4,
    ),
    "multi-head attention": Case(
        "MultiHeadAttention", (floats(2, 3, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2), floats(24)), HEADS
    ),
    "multi-head attention with a past": Case(
        "MultiHeadAttention",
        (*(floats(2, 3, 8, seed=n) for n in range(3)), None, None, None, floats(2, 2, 4, 4), floats(2, 2, 4, 4, seed=5)),
        {**HEADS, "scale": 0.3},
        3,
    ),
    "multi-head attention with a mask": Case(
        "MultiHeadAttention",
        (floats(2, 3, 8), floats(2, 5, 8, seed=1), floats(2, 5, 8, seed=2), None, np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)),
        HEADS,
    ),
    "multi-head attention over given heads": Case(
        "MultiHeadAttention", (floats(2, 3, 8), floats(2, 2, 5, 4, seed=1), floats(2, 2, 5, 4, seed=2)), HEADS
    ),
    "rotary embedding": Case("RotaryEmbedding", (floats(2, 3, 16), np.array([[0, 1, 2], [4, 5, 6]]), *CACHE)),
    "rotary embedding, interleaved, from a place": Case("RotaryEmbedding", (floats(2, 2, 3, 8), np.array([5]), *CACHE), {"interleaved": 1}),
    "grouped attention of a prompt": Case(
        "GroupQueryAttention",
        (floats(1, 5, 32), floats(1, 5, 16, seed=1), floats(1, 5, 16, seed=2), None, None, np.array([4], np.int32), np.array(5, np.int32)),
        {"num_heads": 4, "kv_num_heads": 2},
        3,
    ),
    "grouped attention of one more token, rotated": Case(
        "GroupQueryAttention",
        (
            *(
                floats(2, 1, 64),
                floats(2, 1, 32, seed=1),
                floats(2, 1, 32, seed=2),
                floats(2, 2, 6, 16, seed=3),
                floats(2, 2, 6, 16, seed=4),
            ),
            *(np.array([6, 4], np.int32), np.array(7, np.int32), floats(16, 8, seed=8), floats(16, 8, seed=9)),
        ),
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        1,
    ),
    "embedding and normalisation": Case(
        "EmbedLayerNormalization",
        (
            *(np.array([[1, 4, 2], [0, 3, 3]], np.int32), np.array([[0, 0, 1], [1, 1, 0]], np.int32)),
            *(floats(6, 8), floats(4, 8, seed=1), floats(2, 8, seed=2), floats(8, seed=3), floats(8, seed=4)),
            np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        ),
        outputs=2,
        tolerance=1e-4,
    ),
    "product with 8-bit weights": Case(
        "DynamicQuantizeMatMul", (floats(3, 8), bytes_(8, 5), SCALE, ZERO, floats(5)), constant=(1, 2, 3), tolerance=1e-4
    ),
    "gemm of 8 bits": Case(
        "QGemm",
        (bytes_(3, 8), SCALE, ZERO, bytes_(5, 8, seed=1), SCALE, ZERO, np.arange(5, dtype=np.int32), np.float32(0.1), np.uint8(100)),
        {"transB": 1},
        constant=(3, 4, 5),
    ),
    "average pool of 8 bits": Case(
        "QLinearAveragePool", (bytes_(1, 2, 6, 5), SCALE, ZERO, SCALE, ZERO), {"kernel_shape": [3, 2], "strides": [2, 1]}
    ),
    "average pool of 8 bits, channels last": Case(
        "QLinearAveragePool", (bytes_(1, 6, 5, 3), SCALE, ZERO, SCALE, ZERO), {"kernel_shape": [2, 2], "channels_last": 1}, tolerance=1
    ),
    "inverse": Case("Inverse", (floats(2, 3, 3),), tolerance=1e-4),
    "expanded dimensions": Case("ExpandDims", (X, np.array(-1, np.int32)), constant=(1,)),
    "lower triangle": Case("Trilu", (X, np.array(1)), {"upper": 0}),
    "distances": Case("CDist", (floats(3, 4), floats(5, 4, seed=1)), {"metric": "euclidean"}, tolerance=1e-4),
    "gathered slices": Case("GatherND", (X, np.array([[0, 2], [1, 0]]))),
    "padding": Case("Pad", (X, np.array([0, 1, 0, 0, 0, 2]), np.array([1.5], np.float32)), constant=(1,)),
    "range": Case("Range", (np.array(3, np.int32), np.array(11, np.int32), np.array(3, np.int32))),
    "unique": Case("Unique", (np.array([3, 1, 3, 2, 1], np.float32),), outputs=3),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_meaning_is_that_of_onnx_runtime(case: Case) -> None:
    names = ["" if value is None else f"x{n}" for n, value in enumerate(case.operands)]
    outputs = [f"y{n}" for n in range(3 if case.op_type == "GroupQueryAttention" else case.outputs)]
    node = helper.make_node(case.op_type, names, outputs, domain=case.domain, **case.attributes)
    values = {name: np.asarray(value) for name, value in zip(names, case.operands, strict=True) if name}
    constants = {f"x{n}": values[f"x{n}"] for n in case.constant}
    feeds = {name: value for name, value in values.items() if name not in constants}
    wanted = run_onnxruntime(make_model([node], feeds, outputs, case.opset, constants), feeds)
    got = evaluate_node(node, case.opset, [values[name] if name else None for name in names])
    assert_close(got[: case.outputs], wanted[: case.outputs], rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "onnx.brevitas"])
def test_a_quantised_value_lies_on_the_grid_of_its_bits(domain: str) -> None:
    x = np.array([-9, -1.3, -0.25, 0, 0.25, 0.75, 9], np.float32)
    operands = [x, np.float32(0.5), np.float32(0), np.float32(3)]
    node = helper.make_node("Quant", ["x", "s", "z", "b"], ["y"], domain=domain, signed=1, narrow=0, rounding_mode="ROUND")
    assert evaluate_node(node, 17, operands)[0].tolist() == [-2.0, -1.5, 0.0, 0.0, 0.0, 1.0, 1.5]
    node = helper.make_node("Quant", ["x", "s", "z", "b"], ["y"], domain=domain, signed=1, narrow=1, rounding_mode="FLOOR")
    assert evaluate_node(node, 17, operands)[0].tolist() == [-1.5, -1.5, -0.5, 0.0, 0.0, 0.5, 1.5]
    node = helper.make_node("BipolarQuant", ["x", "s"], ["y"], domain=domain)
    assert evaluate_node(node, 17, operands[:2])[0].tolist() == [-0.5, -0.5, -0.5, 0.5, 0.5, 0.5, 0.5]


def test_an_absent_output_is_none_and_an_absent_optional_too() -> None:
    values = evaluate_node(helper.make_node("MaxPool", ["x"], ["", "i"], kernel_shape=[2]), 17, [floats(1, 1, 4)])
    assert values[0] is None
    assert values[1].shape == (1, 1, 3)
    kind = helper.make_tensor_type_proto(1, [])
    assert evaluate_node(helper.make_node("Optional", [], ["y"], type=kind), 17, []) == [None]


def test_a_function_that_depends_on_types_is_expanded_for_the_values_it_meets() -> None:
    node = helper.make_node("CastLike", ["x", "t"], ["y"])
    assert evaluate_node(node, 17, [floats(3), np.array([1], np.int64)])[0].dtype == np.int64
    node = helper.make_node("Clip", ["x"], ["y"])
    assert_close(evaluate_node(node, 17, [X]), [X])


def test_a_branch_uses_the_values_it_captures() -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["outer"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    assert_close(evaluate_node(node, 17, [np.array(True)], {"outer": X}), [-X])


def test_a_loop_without_an_iteration_gives_empty_stacks_of_the_declared_type() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Identity", ["v"], ["w"]),
            helper.make_node("Identity", ["i"], ["s"]),
        ],
        "b",
        [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("c", 9), ("v", 1))],
        [helper.make_tensor_value_info(name, kind, []) for name, kind in (("d", 9), ("w", 1), ("s", 7))],
    )
    node = helper.make_node("Loop", ["m", "", "a"], ["b", "scan"], body=body)
    last, scan = evaluate_node(node, 17, [np.array(0), None, np.float32(5)])
    assert (last, scan.dtype, scan.shape) == (5, np.int64, (0,))
    assert evaluate_node(node, 17, [np.array(3), None, np.float32(5)])[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("domain", "op_type"), [("", "Relo"), ("my.domain", "Relu"), ("", "Gradient")])
def test_an_unknown_operator_is_refused_by_node_and_operator(domain: str, op_type: str) -> None:
    assert not has_reference(domain, op_type, 17)
    with pytest.raises(UnsupportedError, match=rf"node 'n' \(.*{op_type}\)"):
        evaluate_node(helper.make_node(op_type, ["x"], ["y"], name="n", domain=domain), 17, [X])


def test_operands_an_operator_cannot_take_are_refused_with_types_and_shapes() -> None:
    with pytest.raises(ModelError, match=r"node 'n' \(MatMul\) refuses its inputs a: float32\[2, 3, 8\]"):
        evaluate_node(helper.make_node("MatMul", ["a", "b"], ["y"], name="n"), 17, [X, X])


def test_a_sequence_goes_in_and_out_as_a_list() -> None:
    (parts,) = evaluate_node(helper.make_node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=1), 17, [X])
    assert [part.shape for part in parts] == [(2, 1, 8)] * 3
    joined = evaluate_node(helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1), 17, [parts])
    assert_close(joined, [X])


def test_bfloat16_and_four_bits_keep_their_types() -> None:
    bfloat16 = helper.tensor_dtype_to_np_dtype(16)
    assert evaluate_node(helper.make_node("Add", ["a", "a"], ["y"]), 17, [np.ones(3, bfloat16)] * 2)[0].dtype == bfloat16
    int4 = numpy_helper.to_array(helper.make_tensor("t", 22, [3], [1, -2, 7]))
    assert evaluate_node(helper.make_node("Cast", ["x"], ["y"], to=1), 21, [int4])[0].tolist() == [1, -2, 7]
