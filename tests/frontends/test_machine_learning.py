"""Operators of ai.onnx.ml become ONNX's own and tables of trees, with the results of their specification."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
import pytest

from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.session import InferenceSession
from anycann.support.errors import ModelError
from tests.passes.graphs import compile_graph, steps

ML = "ai.onnx.ml"
NODE = dict[str, object]


def model(op_type: str, attributes: NODE, outputs: Sequence[str] = ("y",), dtype: type = np.float32, version: int = 3) -> onnx.ModelProto:
    """One operator on x [N, 4]; its results have no declared types but their names."""
    node = helper.make_node(op_type, ["x"], list(outputs), domain=ML, **attributes)
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["N", 4])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name=name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ML, version)], ir_version=8)


def left(made: onnx.ModelProto) -> set[str]:
    """Operators of ai.onnx.ml that are not replaced."""
    return {node.op_type for node in upgrade_model(load_model(made)).graph if node.domain == ML}


def drawn(rows: int) -> np.ndarray:
    return np.random.default_rng().standard_normal((rows, 4)).astype(np.float32)


def assert_as_specified(made: onnx.ModelProto, x: np.ndarray, tolerance: float = 1e-5) -> None:
    for got, want in zip(
        InferenceSession(made, num_threads=1).run(None, {"x": x}), ReferenceEvaluator(made).run(None, {"x": x}), strict=True
    ):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


LABELS: NODE = {"classlabels_ints": [3, 7, 9]}
SMALL = [float(number) for number in np.linspace(-1, 1, 12)]


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Scaler", {"offset": [0.5, 1, 2, -1], "scale": [2.0, 3, 0.5, 1]}),
        ("Scaler", {"offset": [0.5], "scale": [2.0]}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.25}),
        ("LinearRegressor", {"coefficients": SMALL, "intercepts": [0.5, 1, 2], "targets": 3}),
        ("LinearRegressor", {"coefficients": SMALL[:4], "intercepts": [0.25]}),
        ("SVMRegressor", {"n_supports": 3, "support_vectors": SMALL, "coefficients": [0.5, -1, 2], "rho": [0.25], "kernel_type": "RBF"}),
        ("SVMRegressor", {"n_supports": 3, "support_vectors": SMALL, "coefficients": [0.5, -1, 2], "rho": [0.25], "kernel_type": "POLY"}),
    ],
)
def test_models_of_numbers_are_kernels(op_type: str, attributes: NODE) -> None:
    kernel = {"kernel_params": [0.3, 1.5, 3.0]} if op_type == "SVMRegressor" else {}
    made = model(op_type, {**attributes, **kernel}, version=1)
    assert not left(made)
    assert_as_specified(made, drawn(5))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_a_linear_classifier_gives_labels_and_scores(transform: str) -> None:
    made = model("LinearClassifier", {"coefficients": SMALL, "intercepts": [0.5, 1, 2], "post_transform": transform, **LABELS}, ("y", "z"))
    assert not left(made)
    assert_as_specified(made, drawn(6))


def test_rows_of_zeros_are_not_divided() -> None:
    made = model("Normalizer", {"norm": "L2"}, version=1)
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": np.zeros((2, 4), np.float32)})
    assert np.array_equal(got, np.zeros((2, 4)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_element_divides_whatever_its_sign(dtype: type) -> None:
    made = model("Normalizer", {"norm": "MAX"}, dtype=dtype, version=1)
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": np.array([[-8, -2, 4, 1], [-4, -2, -8, -2]], dtype)})
    assert got.dtype == np.float32
    assert got.tolist() == [[-2, -0.5, 1, 0.25], [2, 1, 4, 1]]


def test_labels_are_looked_up_and_others_get_the_default() -> None:
    made = model("LabelEncoder", {"keys_int64s": [5, 2, 9], "values_floats": [0.5, 2, -1], "default_float": 7.5}, dtype=np.int64, version=2)
    assert not left(made)
    x = np.array([[5, 2, 9, 3], [1, 10, -9, 5]])
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": x})
    assert np.array_equal(got, np.array([[0.5, 2, -1, 7.5], [7.5, 7.5, 7.5, 0.5]], np.float32))


def test_a_dictionary_for_each_row() -> None:
    made = model("ZipMap", {"classlabels_int64s": [4, 2, 1, 0]}, version=1)
    x = drawn(3)
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": x})
    assert got == [dict(zip([4, 2, 1, 0], row, strict=True)) for row in x.tolist()]


def test_integers_are_above_a_threshold_between_two_of_them() -> None:
    made = model("Binarizer", {"threshold": -0.5}, dtype=np.int64, version=1)
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": np.array([[-2, -1, 0, 1]])})
    assert got.tolist() == [[0, 0, 1, 1]]


def test_labels_of_keys_that_are_as_far_apart_as_can_be_stay() -> None:
    ends = [-(2**63), 2**63 - 1]
    made = model("LabelEncoder", {"keys_int64s": ends, "values_int64s": [5, 6], "default_int64": 7}, dtype=np.int64, version=2)
    assert left(made) == {"LabelEncoder"}
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": np.array([[*ends, 0, 1]])})
    assert got.tolist() == [[5, 6, 7, 7]]


@pytest.mark.parametrize("count", [3, 5])
def test_probabilities_of_support_vectors_agree_with_each_other(count: int) -> None:
    """p is where sum (r[j, i] p[i] - r[i, j] p[j])^2 is least (Wu, Lin and Weng, 2004), r the probability of one class against another."""
    rng, pairs, vectors = np.random.default_rng(), count * (count - 1) // 2, 2 * count
    names = ("coefficients", "rho", "support_vectors", "prob_a", "prob_b")
    drawn_numbers = (rng.standard_normal(size).astype(np.float32) for size in ((count - 1) * vectors, pairs, vectors * 4, pairs, pairs))
    told = {name: numbers.tolist() for name, numbers in zip(names, drawn_numbers, strict=True)}
    kernel = {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 1.0], "vectors_per_class": [2] * count}
    classes = {"classlabels_ints": list(range(count))}
    decisions, made = (
        model("SVMClassifier", {**kernel, **classes, **{name: told[name] for name in which}}, ("y", "z"), version=1)
        for which in (names[:3], names)
    )
    x = drawn(6)
    (_, scores), (_, got) = (InferenceSession(one, num_threads=1).run(None, {"x": x}) for one in (decisions, made))
    chosen = np.clip(1 / (1 + np.exp(scores * told["prob_a"] + told["prob_b"])), 1e-7, 1 - 1e-7).astype(np.float64)
    for row, p in zip(chosen, got, strict=True):
        r = np.zeros((count, count))
        r[np.triu_indices(count, 1)] = row
        r += np.tril(1 - r.T, -1)
        q = np.diag((r * r).sum(axis=0)) - r.T * r
        system = np.block([[q, np.ones((count, 1))], [np.ones((1, count)), np.zeros((1, 1))]])
        exact = np.linalg.solve(system, [*[0] * count, 1])[:-1]
        np.testing.assert_allclose(p.sum(), 1, rtol=1e-5)
        assert p @ q @ p <= exact @ q @ exact + 0.01 / count


# ---- trees
def ensemble(kind: str, trees: int, targets: Sequence[int], modes: Sequence[str], weights: tuple[float, float]) -> NODE:
    """Random trees of three levels; kind: "target" or "class". Their nodes are listed from the last to the first."""
    rng = np.random.default_rng()
    nodes = [(tree, number) for tree in range(trees) for number in range(15)][::-1]
    inner = [number < 7 for _, number in nodes]
    leaves = [node for node, more in zip(nodes, inner, strict=True) if not more]
    return {
        "nodes_treeids": [tree for tree, _ in nodes],
        "nodes_nodeids": [number for _, number in nodes],
        "nodes_featureids": [int(rng.integers(0, 4)) if more else 0 for more in inner],
        "nodes_values": [float(np.float32(rng.integers(-3, 4) / 2)) if more else 0.0 for more in inner],
        "nodes_modes": [str(rng.choice(modes)) if more else "LEAF" for more in inner],
        "nodes_truenodeids": [2 * number + 1 if more else 0 for (_, number), more in zip(nodes, inner, strict=True)],
        "nodes_falsenodeids": [2 * number + 2 if more else 0 for (_, number), more in zip(nodes, inner, strict=True)],
        "nodes_missing_value_tracks_true": [int(rng.integers(0, 2)) if more else 0 for more in inner],
        f"{kind}_treeids": [tree for tree, _ in leaves for _ in targets],
        f"{kind}_nodeids": [number for _, number in leaves for _ in targets],
        f"{kind}_ids": [target for _ in leaves for target in targets],
        f"{kind}_weights": rng.uniform(*weights, len(leaves) * len(targets)).astype(np.float32).tolist(),
    }


def walked(attributes: NODE, kind: str, x: np.ndarray, targets: int) -> np.ndarray:
    """The sums of the leaves' weights, node by node in float64."""
    told = {key.removeprefix("nodes_"): value for key, value in attributes.items() if key.startswith("nodes_")}
    place = {key: at for at, key in enumerate(zip(told["treeids"], told["nodeids"], strict=True))}  # type: ignore[call-overload]
    tests = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater}
    result = np.zeros((len(x), targets))
    entries = list(zip(*(attributes[f"{kind}_{what}"] for what in ("treeids", "nodeids", "ids", "weights")), strict=True))  # type: ignore[call-overload]
    for row, tree in np.ndindex(len(x), max(told["treeids"]) + 1):  # type: ignore[call-overload]
        number = 0
        while (mode := told["modes"][(at := place[tree, number])]) != "LEAF":  # type: ignore[index]
            value = x[row, told["featureids"][at]]  # type: ignore[index]
            met = bool(told["missing_value_tracks_true"][at]) if np.isnan(value) else bool(tests[mode](value, told["values"][at]))  # type: ignore[index]
            number = told["truenodeids" if met else "falsenodeids"][at]  # type: ignore[index]
        for owner, node, target, weight in entries:
            if (owner, node) == (tree, number):
                result[row, target] += weight
    return result


ANY = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")


@pytest.mark.parametrize(("rows", "trees", "targets"), [(1, 20, [0]), (70, 3, [0, 2]), (3, 1, [1])])
def test_regression_trees_are_walked_whatever_their_tests(rows: int, trees: int, targets: list[int]) -> None:
    attributes = ensemble("target", trees, targets, ANY, (-1, 1))
    count = max(targets) + 1
    base = [0.5] * count
    made = model("TreeEnsembleRegressor", {**attributes, "n_targets": count, "base_values": base})
    assert not left(made)
    x = np.round(drawn(rows) * 4) / 2  # thresholds are met exactly
    x[np.random.default_rng().random(x.shape) < 0.1] = np.nan
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": x})
    np.testing.assert_allclose(got, walked(attributes, "target", x, count) + 0.5, rtol=1e-5, atol=1e-5)


def test_an_average_of_trees() -> None:
    attributes = ensemble("target", 5, [0], ("BRANCH_LEQ",), (-1, 1))
    made = model("TreeEnsembleRegressor", {**attributes, "n_targets": 1, "aggregate_function": "AVERAGE"})
    x = drawn(9)
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": x})
    np.testing.assert_allclose(got, walked(attributes, "target", x, 1) / 5, rtol=1e-5, atol=1e-5)


def test_classes_of_trees() -> None:
    attributes = ensemble("class", 6, [0, 1, 2], ANY, (-1, 1))
    made = model("TreeEnsembleClassifier", {**attributes, "classlabels_int64s": [5, 8, 2], "post_transform": "SOFTMAX"}, ("y", "z"))
    x = drawn(11)
    labels, scores = InferenceSession(made, num_threads=1).run(None, {"x": x})
    sums = walked(attributes, "class", x, 3)
    assert np.array_equal(labels, np.array([5, 8, 2])[sums.argmax(1)])
    np.testing.assert_allclose(scores, np.exp(sums) / np.exp(sums).sum(1, keepdims=True), rtol=1e-5)


def test_classes_may_have_names() -> None:
    names = {"classlabels_strings": ["setosa", "versicolor", "virginica"]}
    x = drawn(11)
    attributes = ensemble("class", 6, [0, 1, 2], ANY, (-1, 1))
    labels, _ = InferenceSession(model("TreeEnsembleClassifier", {**attributes, **names}, ("y", "z"))).run(None, {"x": x})
    assert list(labels) == [names["classlabels_strings"][best] for best in walked(attributes, "class", x, 3).argmax(1)]
    made = model("LinearClassifier", {"coefficients": SMALL, "intercepts": [0.5, 1, 2], **names}, ("y", "z"))
    labels, scores = InferenceSession(made).run(None, {"x": x})
    assert list(labels) == [names["classlabels_strings"][best] for best in scores.argmax(1)]


@pytest.mark.parametrize(
    ("weights", "transform"), [((0.0, 0.1), "NONE"), ((0.0, 0.1), "LOGISTIC"), ((-1.0, 1.0), "LOGISTIC"), ((-1.0, 1.0), "NONE")]
)
def test_one_score_says_which_of_two_classes(weights: tuple[float, float], transform: str) -> None:
    attributes = ensemble("class", 8, [0], ("BRANCH_LEQ",), weights)
    made = model("TreeEnsembleClassifier", {**attributes, "classlabels_int64s": [4, 6], "post_transform": transform}, ("y", "z"))
    x = drawn(13)
    labels, scores = InferenceSession(made, num_threads=1).run(None, {"x": x})
    (score,) = walked(attributes, "class", x, 1).T
    positive = min(weights) >= 0
    second = score if transform == "NONE" else 1 / (1 + np.exp(-score))
    first = 1 - second if positive or transform == "LOGISTIC" else -second
    assert np.array_equal(labels, np.where(score > (0.5 if positive else 0), 6, 4))
    np.testing.assert_allclose(scores, np.stack([first, second], 1), rtol=1e-5, atol=1e-5)


def test_what_has_no_kernel_is_run_on_the_host() -> None:
    attributes = ensemble("target", 4, [0], ("BRANCH_LEQ",), (-1, 1))
    made = model("TreeEnsembleRegressor", {**attributes, "n_targets": 1, "aggregate_function": "MIN"})
    assert left(made) == {"TreeEnsembleRegressor"}
    assert_as_specified(made, drawn(3))


def test_worth_at_a_test_or_at_nodes_that_no_row_reaches_changes_nothing() -> None:
    attributes = ensemble("target", 2, [0], ANY, (-1, 1))
    circle: NODE = {
        "nodes_treeids": [7, 7],
        "nodes_nodeids": [0, 1],
        "nodes_featureids": [0, 0],
        "nodes_values": [0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ"] * 2,
        "nodes_truenodeids": [1, 0],
        "nodes_falsenodeids": [1, 0],
        "nodes_missing_value_tracks_true": [0, 0],
        "target_treeids": [0, 0, 7],
        "target_nodeids": [0, 3, 1],
        "target_ids": [0, 0, 0],
        "target_weights": [64.0, 128.0, 256.0],
    }
    whole = {name: [*values, *circle[name]] for name, values in attributes.items()}  # type: ignore[misc]
    made, x = model("TreeEnsembleRegressor", {**whole, "n_targets": 1}), drawn(20)
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": x})
    np.testing.assert_allclose(got, walked(attributes, "target", x, 1), rtol=1e-5, atol=1e-5)


def test_no_rows_have_no_sums() -> None:
    made = model("TreeEnsembleRegressor", {**ensemble("target", 2, [0], ANY, (-1, 1)), "n_targets": 1})
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": np.zeros((0, 4), np.float32)})
    assert got.shape == (0, 1)
    assert got.dtype == np.float32


@pytest.mark.parametrize(("threshold", "modes"), [(np.nan, ("BRANCH_GTE",)), (-np.inf, ("BRANCH_LT",))])
def test_thresholds_that_nothing_is_below_stay(threshold: float, modes: Sequence[str]) -> None:
    attributes = {**ensemble("target", 1, [0], modes, (-1, 1)), "nodes_values": [threshold] * 15}
    assert left(model("TreeEnsembleRegressor", {**attributes, "n_targets": 1})) == {"TreeEnsembleRegressor"}


@pytest.mark.parametrize("declared", [True, False])
def test_trees_for_doubles_give_floats(declared: bool) -> None:
    attributes = {name: values[::-1] for name, values in ensemble("target", 3, [0], ("BRANCH_LEQ",), (-1, 1)).items()}  # type: ignore[index]
    made, x = model("TreeEnsembleRegressor", {**attributes, "n_targets": 1}, dtype=np.float64), drawn(7).astype(np.float64)
    if declared:
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 1]))
    (got,) = InferenceSession(made, num_threads=1).run(None, {"x": x})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, walked(attributes, "target", x, 1), rtol=1e-5, atol=1e-5)


def test_a_circle_of_nodes_is_refused() -> None:
    attributes = ensemble("target", 1, [0], ("BRANCH_LEQ",), (-1, 1))
    attributes["nodes_truenodeids"] = [1] * 15
    with pytest.raises(ModelError, match="two nodes have the same child"):
        InferenceSession(model("TreeEnsembleRegressor", {**attributes, "n_targets": 1}), num_threads=1)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("nodes_truenodeids", [77] * 15),
        ("nodes_modes", ["LEAF"] * 3),
        ("target_nodeids", [99] * 8),
        ("target_ids", [-1] * 8),
        ("target_ids", [1] * 8),
        ("nodes_featureids", [-1] * 15),
        ("nodes_featureids", [2**32] * 15),
    ],
)
def test_attributes_that_do_not_fit_are_refused(attribute: str, value: list[object]) -> None:
    attributes = ensemble("target", 1, [0], ("BRANCH_LEQ",), (-1, 1))
    made = model("TreeEnsembleRegressor", {**attributes, attribute: value, "n_targets": 1})
    with pytest.raises(ModelError, match="do not fit each other"):
        InferenceSession(made, num_threads=1)


def test_no_kernel_reads_behind_a_row() -> None:
    attributes = {**ensemble("target", 1, [0], ("BRANCH_LEQ",), (-1, 1)), "nodes_featureids": [4] * 15}
    session = InferenceSession(model("TreeEnsembleRegressor", {**attributes, "n_targets": 1}), num_threads=1)
    with pytest.raises(ModelError, match="TreeEnsemble"):
        session.run(None, {"x": drawn(40)})


@pytest.mark.parametrize(
    ("operand", "changed"),
    [
        (1, np.zeros(1, np.int64)),
        (2, np.full(1, np.nan, np.float32)),
        (4, np.zeros(3, np.int32)),
        (7, np.zeros((1, 2), np.int32)),
        (8, np.zeros((1, 1), np.float32)),
        (5, np.zeros(0, np.int32)),
    ],
)
def test_no_kernel_is_made_for_tables_that_do_not_fit_together(operand: int, changed: np.ndarray) -> None:
    """Two leaves, one of the one tree and one of those that fill up the list."""
    nodes = [np.zeros(2, np.int32), np.full(2, np.nan, np.float32), np.array([-1, 0], np.int32), np.array([0, 1], np.int32)]
    trees = [np.array([0, *[1] * 15], np.int32), np.zeros(16, np.int32), np.zeros((2, 1), np.int32), np.array([[2], [0]], np.float32)]
    tables = dict(enumerate([*nodes, *trees], 1))
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 1])

    def told() -> str:
        node = helper.make_node("TreeEnsemble", ["x", *(f"t{n}" for n in tables)], ["y"], domain="anycann", tree_count=1, target_count=1)
        known = [onnx.numpy_helper.from_array(table, f"t{number}") for number, table in tables.items()]
        graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], known)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("anycann", 1)]
        return steps(compile_graph(helper.make_model(graph, opset_imports=imports, ir_version=8)).program)

    assert told().startswith("native(")
    tables[operand] = changed
    assert told() == "host(TreeEnsemble)"
