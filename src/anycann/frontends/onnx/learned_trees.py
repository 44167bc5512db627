"""Trees of `ai.onnx.ml`, forests and boosted trees, in terms of `anycann.TreeEnsemble`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.frontends.onnx.learned_edit import as_float, best, integers, label_count, labels, numbers, text, transformed
from anycann.frontends.onnx.tree_tables import BELOW, LEAF, MODES, Entries, Nodes, tables
from anycann.graph.ops.trees import MOST_FEATURES


def _tree_nodes(edit: Edit) -> tuple[Nodes, dict[tuple[int, int], int]] | None:
    """The nodes, and the number of each by its tree's number and its own; None for tests that are not here."""
    trees, own = integers(edit, "nodes_treeids"), integers(edit, "nodes_nodeids")
    modes = np.array([mode.decode() if isinstance(mode, bytes) else mode for mode in edit.get("nodes_modes", ())])  # type: ignore[attr-defined]
    thresholds = numbers(edit, "nodes_values")
    if not len(modes) or not np.isin(modes, MODES).all() or thresholds.dtype != np.float32:
        return None
    number = {key: place for place, key in enumerate(zip(trees.tolist(), own.tolist(), strict=True))}
    leaf, features = modes == LEAF, integers(edit, "nodes_featureids")
    if (wrong := features[~leaf & ((features < 0) | (features > MOST_FEATURES))]).size:
        raise ValueError(f"a node asks for feature {wrong[0]}; accepted: 0 to {MOST_FEATURES}")
    if np.isnan(thresholds[~leaf]).any() or np.isneginf(thresholds[np.isin(modes, BELOW)]).any():
        return None

    def places(name: str) -> np.ndarray:
        ids = np.where(leaf, own, integers(edit, name)).tolist()
        return np.array([number[key] for key in zip(trees.tolist(), ids, strict=True)])

    when_true, when_false = places("nodes_truenodeids"), places("nodes_falsenodeids")
    missing = integers(edit, "nodes_missing_value_tracks_true")
    missing = missing if len(missing) else np.zeros(len(modes), np.int64)
    reached = np.zeros(len(modes), bool)
    reached[when_true[~leaf]] = reached[when_false[~leaf]] = True
    nodes = Nodes(np.flatnonzero(~reached), modes, features, thresholds, when_true, when_false, missing)
    return nodes, number


def _trees(edit: Edit, kind: str, targets: int, scale_by_trees: bool, one_target: bool = False) -> ir.Value | None:
    """The sums of what the leaves are worth, their entries in the attributes that begin with `kind`."""
    x, found, weights = as_float(edit), _tree_nodes(edit), numbers(edit, f"{kind}_weights")
    if x is None or (x.shape is not None and len(x.shape) != 2) or found is None or weights.dtype != np.float32:
        return None
    nodes, number = found
    keys = zip(integers(edit, f"{kind}_treeids").tolist(), integers(edit, f"{kind}_nodeids").tolist(), strict=True)
    ids = np.zeros(len(weights), np.int64) if one_target else integers(edit, f"{kind}_ids")
    if ids.min(initial=0) < 0 or ids.max(initial=0) >= targets:
        raise ValueError(f"{kind}_ids are {ids.min()} to {ids.max()}; accepted: 0 to {targets - 1}")
    weights = weights / np.float32(len(nodes.roots)) if scale_by_trees else weights
    made = tables(nodes, Entries(np.array([number[key] for key in keys]), ids, weights))
    operands = [x, *(edit.constant(table, str(table.dtype)) for table in made)]
    attributes = {"tree_count": len(nodes.roots), "target_count": targets}
    sums = edit.add(ir.node("TreeEnsemble", operands, attributes, domain="anycann"))
    sums.type, sums.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([None, targets])
    return sums


def _with_base(edit: Edit, scores: ir.Value) -> ir.Value:
    base = numbers(edit, "base_values")
    return edit.before("Add", [scores, edit.constant(base, "float32")]) if base.any() else scores


def tree_regressor(edit: Edit) -> Sequence[ir.Value] | None:
    """TreeEnsembleRegressor(x) -> post_transform(TreeEnsemble(x) + base)."""
    kind = text(edit, "aggregate_function", "SUM")
    if kind not in ("SUM", "AVERAGE"):
        return None
    scores = _trees(edit, "target", int(edit.get("n_targets", 1)), kind == "AVERAGE")  # type: ignore[call-overload]
    result = None if scores is None else transformed(edit, _with_base(edit, scores))
    return None if result is None else [result]


def tree_classifier(edit: Edit) -> Sequence[ir.Value] | None:
    """TreeEnsembleClassifier(x) -> labels[ArgMax(s)], post_transform(s) of s = TreeEnsemble(x) + base.

    Two classes may have one score, as ONNX Runtime understands it: that of the second class, a probability if no weight is negative.
    """
    count, names, base = label_count(edit), labels(edit), numbers(edit, "base_values")
    classes = np.unique(integers(edit, "class_ids"))
    if names is None or count < 2 or len(base) not in (0, 1 if len(classes) == 1 else count) or (len(classes) == 1 and count > 2):
        return None
    if len(classes) == 1:
        return _binary_classifier(edit, names) if classes[0] == 0 else None
    scores = _trees(edit, "class", count, False)
    if scores is None:
        return None
    scores = _with_base(edit, scores)
    result = transformed(edit, scores)
    return None if result is None else [best(edit, scores, names), result]


def _binary_classifier(edit: Edit, names: ir.Value) -> Sequence[ir.Value] | None:
    scores = _trees(edit, "class", 1, False, one_target=True)
    if scores is None:
        return None
    score = _with_base(edit, scores)
    probability = (numbers(edit, "class_weights") >= 0).all()
    if text(edit, "post_transform", "NONE") == "LOGISTIC":
        both = [edit.before("Sigmoid", [edit.before("Neg", [score])]), edit.before("Sigmoid", [score])]
    elif probability:
        both = [edit.before("Sub", [edit.constant(1, "float32"), score]), score]
    else:
        both = [edit.before("Neg", [score]), score]
    threshold = 0.5 if probability else 0.0
    positive = edit.before("Greater", [edit.before("Reshape", [score, edit.constant([-1])]), edit.constant(threshold, "float32")])
    label = edit.before("Gather", [names, edit.before("Cast", [positive], {"to": int(ir.DataType.INT64)})])
    return [label, edit.before("Concat", both, {"axis": 1})]
