"""Each upgrade rule: the old form run by ONNX Runtime, the new form run node by node on the host."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper
import onnx_ir as ir
from onnx_models import assert_close, make_model, run_on_host, run_onnxruntime
import pytest

from anycann.frontends.onnx.check import NEWEST_OPSET
from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.sources import source_names
from anycann.support.errors import UnsupportedError


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normalised(x: np.ndarray, *statistics: np.ndarray) -> np.ndarray:
    scale, bias, mean, variance = (value[:, None, None] for value in statistics)
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + bias


@dataclass(frozen=True)
class Case:
    """One node of an old opset. `constants` are operands given as initialisers; `absent` the number of a left-out operand."""

    opset: int
    op_type: str
    operands: tuple[np.ndarray, ...]
    attributes: dict[str, object] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    outputs: int = 1
    becomes: str = ""  # an operator that must be in the new model


X = floats(2, 3, 5, 7)
INTS = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
STATISTICS = (floats(3, seed=1), floats(3, seed=2), floats(3, seed=3), np.abs(floats(3, seed=4)) + 0.5)
GATES = {"hidden_size": 4}
LSTM = (floats(5, 2, 3), floats(1, 16, 3, seed=1), floats(1, 16, 4, seed=2))
GRU = (floats(5, 2, 3), floats(1, 12, 3, seed=1), floats(1, 12, 4, seed=2))
RNN = (floats(5, 2, 3), floats(1, 4, 3, seed=1), floats(1, 4, 4, seed=2))

OPSET_6 = {  # ONNX Runtime begins at opset 7: the case, and the same in numpy or as a node of opset 7
    "add whose second operand lies in the middle": (
        Case(6, "Add", (X, floats(3, 5)), {"broadcast": 1, "axis": 1}),
        X + floats(3, 5)[:, :, None],
    ),
    "mul along the batch": (Case(6, "Mul", (X, floats(2)), {"broadcast": 1, "axis": 0}), X * floats(2)[:, None, None, None]),
    "sub with a suffix": (Case(6, "Sub", (X, floats(5, 7)), {"broadcast": 1}), X - floats(5, 7)),
    "prelu with a slope a channel": (
        Case(6, "PRelu", (X, floats(3)), constants=(1,)),
        np.where(X < 0, X * floats(3)[:, None, None], X),
    ),
    "prelu with one slope": (Case(6, "PRelu", (X, floats(1)), constants=(1,)), np.where(X < 0, X * floats(1), X)),
    "gemm with a row": (
        Case(6, "Gemm", (floats(4, 3), floats(3, 5), floats(5)), {"broadcast": 1, "alpha": 0.5}),
        (floats(4, 3) @ floats(3, 5)) * np.float32(0.5) + floats(5),
    ),
    "batch normalisation in test mode": (Case(6, "BatchNormalization", (X, *STATISTICS), {"is_test": 1}), normalised(X, *STATISTICS)),
    "dropout in test mode": (Case(6, "Dropout", (X,), {"is_test": 1}, becomes="Identity"), X),
    "upsample by height and width": (
        Case(6, "Upsample", (X,), {"height_scale": 2.0, "width_scale": 3.0}, becomes="Resize"),
        X.repeat(2, axis=2).repeat(3, axis=3),
    ),
}


CASES = {
    "lstm": Case(7, "LSTM", LSTM, GATES, outputs=3),
    "gru": Case(7, "GRU", GRU, {**GATES, "linear_before_reset": 1}, outputs=2),
    "rnn": Case(7, "RNN", RNN, GATES, outputs=2),
    "batch normalisation of samples": Case(
        7, "BatchNormalization", (X, *(np.abs(floats(3, 5, 7, seed=n)) + 0.5 for n in range(4))), {"spatial": 0}
    ),
    "batch normalisation": Case(9, "BatchNormalization", (X, *STATISTICS), {"epsilon": 0.01}),
    "clip with both limits": Case(7, "Clip", (X,), {"min": -0.5, "max": 0.5}),
    "clip with one limit": Case(10, "Clip", (X,), {"min": 0.0}),
    "clip of float16": Case(7, "Clip", (X.astype(np.float16),), {"max": 0.25}),
    "dropout of opset 7": Case(7, "Dropout", (X,), {"ratio": 0.9}, becomes="Identity"),
    "dropout of opset 10 with its mask": Case(10, "Dropout", (X,), {"ratio": 0.9}, becomes="Identity"),
    "dropout of opset 12": Case(12, "Dropout", (X, np.float32(0.5)), constants=(1,), becomes="Identity"),
    "pad with a value": Case(7, "Pad", (X,), {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 1.5}),
    "pad by reflection": Case(10, "Pad", (X,), {"pads": [0, 0, 1, 2, 0, 0, 3, 1], "mode": "reflect"}),
    "slice with axes": Case(7, "Slice", (X,), {"starts": [1, -3], "ends": [3, 2147483647], "axes": [1, 3]}),
    "slice without axes": Case(9, "Slice", (X,), {"starts": [0, 1], "ends": [1, 9]}),
    "split into equal parts": Case(7, "Split", (floats(6, 2),), {"axis": 0}, outputs=3),
    "split by sizes": Case(11, "Split", (floats(6, 2),), {"axis": 0, "split": [1, 3, 2]}, outputs=3),
    "split of opset 13 without sizes": Case(13, "Split", (floats(2, 6),), {"axis": 1}, outputs=2),
    "squeeze of axes": Case(7, "Squeeze", (floats(1, 3, 1),), {"axes": [0]}),
    "squeeze of all": Case(11, "Squeeze", (floats(1, 3, 1),)),
    "squeeze of a negative axis": Case(11, "Squeeze", (floats(1, 3, 1),), {"axes": [-1]}),
    "unsqueeze": Case(7, "Unsqueeze", (floats(3, 2),), {"axes": [0, 3]}),
    "top-k of opset 7": Case(7, "TopK", (floats(3, 9),), {"k": 4, "axis": 1}, outputs=2),
    "top-k of opset 10": Case(10, "TopK", (floats(3, 9), np.array([2], np.int64)), constants=(1,), outputs=2),
    "upsample to the nearest": Case(7, "Upsample", (X,), {"scales": [1.0, 1.0, 2.0, 3.0]}, becomes="Resize"),
    "upsample linearly": Case(
        9, "Upsample", (X, np.array([1, 1, 2, 1.5], np.float32)), {"mode": "linear"}, constants=(1,), becomes="Resize"
    ),
    "resize of opset 10 that grows": Case(10, "Resize", (X, np.array([1, 1, 2.5, 2], np.float32)), constants=(1,)),
    "resize of opset 10 that shrinks": Case(10, "Resize", (X, np.array([1, 1, 0.6, 0.5], np.float32)), constants=(1,)),
    "resize of opset 10 that grows and shrinks": Case(10, "Resize", (X, np.array([1, 1, 0.6, 1.7], np.float32)), constants=(1,)),
    "resize of opset 10, linear": Case(10, "Resize", (X, np.array([1, 1, 0.6, 1.7], np.float32)), {"mode": "linear"}, constants=(1,)),
    "resize of opset 11": Case(11, "Resize", (X, np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)), constants=(1, 2)),
    "resize as TensorFlow": Case(
        11,
        "Resize",
        (X, np.zeros(0, np.float32), np.array([1, 1, 1.7, 0.6], np.float32)),
        {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor", "mode": "nearest"},
        constants=(1, 2),
    ),
    "scatter": Case(9, "Scatter", (floats(3, 4), np.array([[0, 2, 1, 0]]), floats(1, 4, seed=5)), becomes="ScatterElements"),
    "region of interest": Case(
        10,
        "RoiAlign",
        (X[:1], np.array([[0.5, 0.5, 5, 4]], np.float32), np.array([0], np.int64)),
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
    ),
    "grid sample": Case(16, "GridSample", (X, np.tanh(floats(2, 4, 3, 2))), {"mode": "bilinear"}),
    "grid sample, cubic": Case(16, "GridSample", (X, np.tanh(floats(2, 4, 3, 2))), {"mode": "bicubic"}),
    "fourier transform": Case(17, "DFT", (floats(2, 6, 4, 1),), {"axis": 2}),
    "group normalisation": Case(18, "GroupNormalization", (floats(2, 6, 5), floats(3, seed=1), floats(3, seed=2)), {"num_groups": 3}),
    "average pool": Case(7, "AveragePool", (X,), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    "max pool with indices": Case(8, "MaxPool", (X,), {"kernel_shape": [2, 2]}, outputs=2),
    "argmax": Case(7, "ArgMax", (X,), {"axis": 2, "keepdims": 0}),
    "quantise": Case(10, "QuantizeLinear", (X, np.float32(0.02), np.uint8(7)), constants=(1, 2)),
    "dequantise": Case(10, "DequantizeLinear", (INTS.astype(np.uint8), np.float32(0.02), np.uint8(7)), constants=(1, 2)),
    "depth to space": Case(7, "DepthToSpace", (floats(1, 8, 2, 3),), {"blocksize": 2}),
    "gather": Case(7, "Gather", (X, np.array([2, 0])), {"axis": 1}),
    "reshape": Case(7, "Reshape", (X, np.array([0, -1])), constants=(1,)),
    "power": Case(7, "Pow", (np.abs(X), np.float32(0.5))),
    "shape": Case(7, "Shape", (X,)),
    **{f"reduce {name} over axes": Case(11, f"Reduce{name}", (np.abs(X),), {"axes": [1, 3], "keepdims": 0}) for name in REDUCTIONS},
    **{f"reduce {name} over all": Case(7, f"Reduce{name}", (np.abs(X),), {"keepdims": 1}) for name in REDUCTIONS},
    **{
        f"{op} over axis {axis} and those behind": Case(11, op, (X,), {"axis": axis})
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in (0, 1, 2, 3, -1)
    },
    "softmax without an axis": Case(7, "Softmax", (X,)),
    "softmax over channels of single pixels": Case(9, "Softmax", (floats(2, 5, 1, 1),)),
}


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    names = [f"x{n}" for n in range(len(case.operands))]
    outputs = [f"y{n}" for n in range(case.outputs)]
    values = {name: np.asarray(value) for name, value in zip(names, case.operands, strict=True)}
    constants = {f"x{n}": values[f"x{n}"] for n in case.constants}
    feeds = {name: value for name, value in values.items() if name not in constants}
    node = helper.make_node(case.op_type, names, outputs, name="old", **case.attributes)
    return make_model([node], feeds, outputs, case.opset, constants, ir_version=8), feeds


def assert_valid_at_newest_opset(model: onnx.ModelProto) -> None:
    where = onnx.checker.C.CheckerContext()
    where.ir_version, where.opset_imports = 13, {"": NEWEST_OPSET}
    for node in model.graph.node:
        onnx.checker.check_node(node, where)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_new_form_computes_what_the_old_one_did(case: Case) -> None:
    model, feeds = model_of(case)
    upgraded = upgrade_model(load_model(model))
    proto = ir.to_proto(upgraded)
    assert_valid_at_newest_opset(proto)
    assert [entry.version for entry in proto.opset_import if entry.domain == ""] == [26]
    assert not case.becomes or case.becomes in [node.op_type for node in upgraded.graph]
    assert_close(run_on_host(upgraded, feeds), run_onnxruntime(model, feeds), atol=1e-5 if case.opset < 26 else 0)


@pytest.mark.parametrize(("case", "wanted"), OPSET_6.values(), ids=OPSET_6.keys())
def test_a_node_of_opset_6_computes_what_it_meant(case: Case, wanted: np.ndarray) -> None:
    model, feeds = model_of(case)
    upgraded = upgrade_model(load_model(model))
    assert_valid_at_newest_opset(ir.to_proto(upgraded))
    assert not case.becomes or case.becomes in [node.op_type for node in upgraded.graph]
    assert_close(run_on_host(upgraded, feeds), [wanted], atol=1e-5)


def test_a_recurrent_node_of_opset_6_loses_the_switch_of_its_outputs() -> None:
    model, feeds = model_of(Case(6, "LSTM", LSTM, {**GATES, "output_sequence": 1}, outputs=3))
    same, _ = model_of(Case(7, "LSTM", LSTM, GATES, outputs=3))
    assert_close(run_on_host(upgrade_model(load_model(model)), feeds), run_onnxruntime(same, feeds), atol=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_new_node_names_the_old_one_as_its_source(case: Case) -> None:
    upgraded = upgrade_model(load_model(model_of(case)[0]))
    assert {name for node in upgraded.graph for name in source_names(node)} == {"old"}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_upgraded_model_is_not_changed_by_another_upgrade(case: Case) -> None:
    once = upgrade_model(load_model(model_of(case)[0]))
    text = ir.to_proto(once).SerializeToString(deterministic=True)
    assert ir.to_proto(upgrade_model(once)).SerializeToString(deterministic=True) == text


def test_a_rule_reaches_into_the_branches_of_an_if() -> None:
    node = helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    branches = {
        f"{name}_branch": helper.make_graph([node], name, [], [helper.make_tensor_value_info("y", 1, None)]) for name in ("then", "else")
    }
    feeds = {"condition": np.array(True), "x": floats(1, 3)}
    model = make_model([helper.make_node("If", ["condition"], ["z"], **branches)], feeds, ["z"], opset=11)
    assert_close(run_on_host(upgrade_model(load_model(model)), feeds), [feeds["x"][0]])


def test_the_mask_of_an_idle_dropout_is_all_true() -> None:
    feeds = {"x": floats(2, 3)}
    model = make_model([helper.make_node("Dropout", ["x"], ["y", "mask"])], feeds, ["y", "mask"], opset=10)
    assert_close(run_on_host(upgrade_model(load_model(model)), feeds), [feeds["x"], np.ones((2, 3), bool)])


def test_a_dropout_that_trains_stays() -> None:
    feeds = {"x": floats(2, 3), "ratio": np.float32(0.5), "training": np.array(True)}
    model = make_model([helper.make_node("Dropout", list(feeds), ["y"])], feeds, ["y"], opset=13)
    assert [node.op_type for node in upgrade_model(load_model(model)).graph] == ["Dropout"]


def test_a_scan_over_a_batch_becomes_a_scan_of_scans() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "next"], ["total"]), helper.make_node("Identity", ["total"], ["part"])],
        "body",
        [helper.make_tensor_value_info(name, 1, [2]) for name in ("sum", "next")],
        [helper.make_tensor_value_info(name, 1, [2]) for name in ("total", "part")],
    )
    feeds = {"initial": floats(3, 2), "x": floats(3, 4, 2)}
    model = make_model(
        [helper.make_node("Scan", ["", "initial", "x"], ["y", "z"], num_scan_inputs=1, body=body)], feeds, ["y", "z"], opset=8
    )
    parts = feeds["initial"][:, None] + np.cumsum(feeds["x"], axis=1, dtype=np.float32)
    assert_close(run_on_host(upgrade_model(load_model(model)), feeds), [parts[:, -1], parts], rtol=1e-5)


def test_a_gradient_node_becomes_the_nodes_that_compute_it() -> None:
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("Div", ["c", "a"], ["d"]),
        helper.make_node("Gradient", ["a", "b"], ["da", "db"], domain="ai.onnx.preview.training", xs=["a", "b"], y="c"),
    ]
    feeds = {"a": floats(2, 3), "b": floats(3)}
    model = make_model(nodes, feeds, ["da", "db"], opset=12)
    model.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    wanted = [np.broadcast_to(feeds["b"], (2, 3)), feeds["a"].sum(axis=0)]
    assert_close(run_on_host(upgrade_model(load_model(model)), feeds), wanted)


@pytest.mark.parametrize(
    ("opset", "op_type", "attributes", "said"),
    [
        (5, "Clip", {}, "form of opset 5"),
        (6, "BatchNormalization", {"is_test": 0}, "is_test"),
        (8, "Scan", {}, "sequence_lens"),
    ],
)
def test_a_form_that_has_no_present_one_is_refused_with_its_name(
    opset: int, op_type: str, attributes: dict[str, object], said: str
) -> None:
    operands = {"Clip": [X], "BatchNormalization": [X, *STATISTICS], "Scan": [np.array([2]), X]}[op_type]
    if op_type == "Scan":
        info = helper.make_tensor_value_info("next", 1, None)
        attributes = {"num_scan_inputs": 1, "body": helper.make_graph([], "body", [info], [info])}
    feeds = {f"x{n}": value for n, value in enumerate(operands)}
    model = make_model([helper.make_node(op_type, list(feeds), ["y"], name="culprit", **attributes)], feeds, ["y"], opset=opset)
    with pytest.raises(UnsupportedError, match=r"culprit") as caught:
        upgrade_model(load_model(model))
    assert said in str(caught.value)


def test_operators_that_only_lost_a_memory_hint_are_taken_from_any_opset() -> None:
    feeds = {"x": floats(2, 3)}
    model = make_model([helper.make_node("Relu", ["x"], ["y"], consumed_inputs=[0])], feeds, ["y"], opset=1)
    assert_close(run_on_host(upgrade_model(load_model(model)), feeds), [np.maximum(feeds["x"], 0)])
