"""Operators of `ai.onnx.ml`, as which scikit-learn's models and boosted trees are exported, in terms of ONNX's own operators.

What is not here stays, and is run on the host by its meaning in onnx.reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.frontends.onnx.learned_edit import (
    FLOAT,
    TypedEdit,
    as_float,
    best,
    infer_types,
    integers,
    label_count,
    labels,
    numbers,
    text,
    transformed,
)
from anycann.frontends.onnx.learned_trees import tree_classifier, tree_regressor
from anycann.graph.sources import describe, subgraphs
from anycann.support.errors import ModelError

DOMAIN = "ai.onnx.ml"
Writer: TypeAlias = Callable[[Edit], Sequence[ir.Value] | None]


def expand_machine_learning(graph: ir.Graph) -> None:
    """Replace nodes of `ai.onnx.ml` in `graph`, whose operators are of the newest opset, and in the graphs within, in place.

    In the order of the nodes: what one of these means depends on the type of its operand.
    """
    for node in list(graph):
        for inner in subgraphs(node):
            expand_machine_learning(inner)
        edit = TypedEdit(graph, node)
        made = _made(edit) if node.domain == DOMAIN and node.op_type in WRITERS else None
        if made is None:
            infer_types(node)
            continue
        for number, value in enumerate(made[: len(node.outputs)]):
            edit.replace_output(number, edit.before("Identity", [value]))
        edit.remove()


def _made(edit: Edit) -> Sequence[ir.Value] | None:
    try:
        return WRITERS[edit.node.op_type](edit)
    except (KeyError, IndexError, ValueError) as error:
        raise ModelError(f"{describe(edit.node)}: its attributes do not fit each other: {error}") from error


# ---- linear models
def _linear(edit: Edit, rows: int) -> ir.Value | None:
    """x C^T + intercepts, `rows` of them."""
    x, coefficients, intercepts = as_float(edit), numbers(edit, "coefficients"), numbers(edit, "intercepts")
    if x is None or rows < 1 or len(coefficients) % rows or len(intercepts) not in (0, rows):
        return None
    product = edit.before("MatMul", [x, edit.constant(coefficients.reshape(rows, -1).T, "float32")])
    return edit.before("Add", [product, edit.constant(intercepts, "float32")]) if len(intercepts) else product


def _linear_regressor(edit: Edit) -> Sequence[ir.Value] | None:
    """LinearRegressor(x) -> Add(MatMul(x, C^T), intercepts)."""
    result = _linear(edit, int(edit.get("targets", 1)))  # type: ignore[call-overload]
    result = None if result is None else transformed(edit, result)
    return None if result is None else [result]


def _linear_classifier(edit: Edit) -> Sequence[ir.Value] | None:
    """LinearClassifier(x) -> labels[ArgMax(s)], post_transform(s) of s = Add(MatMul(x, C^T), intercepts), one column a class."""
    count, names = label_count(edit), labels(edit)
    scores = _linear(edit, count) if count > 1 and len(numbers(edit, "intercepts")) in (0, count) else None
    result = None if scores is None else transformed(edit, scores)
    if scores is None or result is None or names is None:
        return None
    return [best(edit, scores, names), result]


# ---- columns
def _scaler(edit: Edit) -> Sequence[ir.Value] | None:
    """Scaler(x) -> Mul(Sub(x, offset), scale)."""
    x = as_float(edit)
    if x is None:
        return None
    offset, scale = (edit.constant(numbers(edit, name), "float32") for name in ("offset", "scale"))
    return [edit.before("Mul", [edit.before("Sub", [x, offset]), scale])]


def _normalizer(edit: Edit) -> Sequence[ir.Value] | None:
    """Normalizer(x) -> x / ReduceL1(x), ReduceL2 or ReduceMax along the last axis; rows of zeros stay."""
    x, reduced = as_float(edit), {"L1": "ReduceL1", "L2": "ReduceL2", "MAX": "ReduceMax"}.get(text(edit, "norm", "MAX"))
    if x is None or reduced is None:
        return None
    size = edit.before(reduced, [x, edit.constant([-1])], {"keepdims": 1})
    one = edit.constant(1, "float32")
    return [edit.before("Div", [x, edit.before("Where", [edit.before("Equal", [size, edit.constant(0, "float32")]), one, size])])]


def _binarizer(edit: Edit) -> Sequence[ir.Value] | None:
    """Binarizer(x) -> Cast(Greater(x, threshold))."""
    x, least = edit.required(0), np.float32(edit.get("threshold", 0.0))  # type: ignore[arg-type]
    least = least if x.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE) else np.floor(least)
    threshold = edit.before("CastLike", [edit.constant(least, "float32"), x])
    return [edit.before("CastLike", [edit.before("Greater", [x, threshold]), x])]


def _imputer(edit: Edit) -> Sequence[ir.Value] | None:
    """Imputer(x) -> Where(x == replaced, imputed, x), of floats."""
    x, imputed = edit.required(0), np.asarray(edit.get("imputed_value_floats", ()), np.float32)
    replaced = float(edit.get("replaced_value_float", 0.0))  # type: ignore[arg-type]
    if x.dtype != ir.DataType.FLOAT or not len(imputed):
        return None
    missing = edit.before("IsNaN", [x]) if np.isnan(replaced) else edit.before("Equal", [x, edit.constant(replaced, "float32")])
    return [edit.before("Where", [missing, edit.constant(imputed, "float32"), x])]


def _array_feature_extractor(edit: Edit) -> Sequence[ir.Value] | None:
    """ArrayFeatureExtractor(x, places) -> Gather(x, places) along the last axis; a vector becomes a matrix of one row."""
    x = edit.required(0)
    if x.shape is None:
        return None
    chosen = edit.before("Gather", [x, edit.before("Reshape", [edit.input(1), edit.constant([-1])])], {"axis": len(x.shape) - 1})
    return [chosen if len(x.shape) > 1 else edit.before("Reshape", [chosen, edit.constant([1, -1])])]


def _label_encoder(edit: Edit) -> Sequence[ir.Value] | None:
    """LabelEncoder(x) of integers that lie close together -> Where(known[x - least], values[x - least], default)."""
    keys, dtype = integers(edit, "keys_int64s"), "float32" if edit.get("values_floats") is not None else "int64"
    values = numbers(edit, "values_floats") if dtype == "float32" else integers(edit, "values_int64s")
    if not len(keys) or len(keys) != len(values) or (extent := int(keys.max()) - int(keys.min()) + 1) > 64 + 4 * len(keys):
        return None
    least = int(keys.min())
    table, known = np.zeros(extent, dtype), np.zeros(extent, bool)
    table[keys[::-1] - least], known[keys - least] = values[::-1], True  # of two equal keys the first
    default = edit.get("default_float", -0.0) if dtype == "float32" else edit.get("default_int64", -1)
    place = edit.before("Sub", [edit.required(0), edit.constant(least)])
    inside = edit.before("Clip", [place, edit.constant(0), edit.constant(extent - 1)])
    there = edit.before("And", [edit.before("Equal", [place, inside]), edit.before("Gather", [edit.constant(known, "bool"), inside])])
    return [edit.before("Where", [there, edit.before("Gather", [edit.constant(table, dtype), inside]), edit.constant(default, dtype)])]


def _one_hot_encoder(edit: Edit) -> Sequence[ir.Value] | None:
    """OneHotEncoder(x) -> Cast(Equal(Unsqueeze(x), categories)), where what is no category is all zeros."""
    x, categories = edit.required(0), integers(edit, "cats_int64s")
    if not edit.get("zeros", 1) or not len(categories) or x.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None
    column = edit.before("Unsqueeze", [edit.before("Cast", [x], {"to": int(ir.DataType.INT64)}), edit.constant([-1])])
    return [edit.before("Cast", [edit.before("Equal", [column, edit.constant(categories)])], {"to": FLOAT})]


# ---- support vectors
def _kernel(edit: Edit, x: ir.Value, vectors: np.ndarray) -> ir.Value | None:
    """How near each row is to each support vector."""
    kind, (gamma, constant, degree) = text(edit, "kernel_type", "LINEAR"), numbers(edit, "kernel_params")
    if kind == "RBF":
        column = edit.before("Unsqueeze", [x, edit.constant([1])])
        apart = edit.before("Sub", [column, edit.constant(vectors, "float32")])
        distance = edit.before("ReduceSumSquare", [apart, edit.constant([2])], {"keepdims": 0})
        return edit.before("Exp", [edit.before("Mul", [distance, edit.constant(-gamma, "float32")])])
    product = edit.before("MatMul", [x, edit.constant(vectors.T, "float32")])
    if kind == "LINEAR":
        return product
    line = edit.before("Add", [edit.before("Mul", [product, edit.constant(gamma, "float32")]), edit.constant(constant, "float32")])
    if kind == "SIGMOID":
        return edit.before("Tanh", [line])
    return edit.before("Pow", [line, edit.constant(degree, "float32")]) if kind == "POLY" else None


def _svm_regressor(edit: Edit) -> Sequence[ir.Value] | None:
    """SVMRegressor(x) -> Add(MatMul(kernel(x, vectors), coefficients), rho); one_class: its sign."""
    count, x = int(edit.get("n_supports", 0)), as_float(edit)  # type: ignore[call-overload]
    coefficients, rho = numbers(edit, "coefficients"), numbers(edit, "rho")
    if count < 1 or x is None or len(coefficients) != count or len(rho) != 1 or len(numbers(edit, "kernel_params")) != 3:
        return None
    near = _kernel(edit, x, numbers(edit, "support_vectors").reshape(count, -1))
    if near is None:
        return None
    score = edit.before(
        "Add", [edit.before("MatMul", [near, edit.constant(coefficients[:, None], "float32")]), edit.constant(rho, "float32")]
    )
    if edit.get("one_class", 0):
        positive = edit.before("Greater", [score, edit.constant(0, "float32")])
        return [edit.before("Where", [positive, edit.constant(1, "float32"), edit.constant(-1, "float32")])]
    result = transformed(edit, score)
    return None if result is None else [result]


WRITERS: dict[str, Writer] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "SVMRegressor": _svm_regressor,
    "Scaler": _scaler,
    "TreeEnsembleClassifier": tree_classifier,
    "TreeEnsembleRegressor": tree_regressor,
}
