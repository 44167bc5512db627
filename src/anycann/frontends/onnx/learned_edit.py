"""What the operators of `ai.onnx.ml` have in common: their attributes, scores and labels."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.graph.infer import infer_outputs
from anycann.graph.registry import library
from anycann.support.errors import ModelError

FLOAT = int(ir.DataType.FLOAT)


class TypedEdit(Edit):
    """An edit whose new values have types, as far as they follow from those of the operands."""

    def add(self, node: ir.Node) -> ir.Value:
        value = super().add(node)
        infer_types(node)
        return value


def infer_types(node: ir.Node) -> None:
    """Type the outputs that have no type; what is wrong with a node is said when it is compiled."""
    with contextlib.suppress(ModelError):
        for output, inferred in zip(node.outputs, infer_outputs(node, library()), strict=True):
            if output.type is None and inferred.type is not None:
                output.type, output.shape = inferred.type, None if inferred.shape is None else ir.Shape(inferred.shape)


def text(edit: Edit, name: str, default: str) -> str:
    """An attribute of text."""
    value = edit.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def numbers(edit: Edit, name: str) -> np.ndarray:
    """An attribute of several floats, none if it is not there; also as the tensor that newer versions of the operators have."""
    tensor = edit.get(f"{name}_as_tensor")
    return np.asarray(edit.get(name, ()), np.float32) if tensor is None else tensor.numpy()  # type: ignore[attr-defined]


def integers(edit: Edit, name: str) -> np.ndarray:
    """An attribute of several integers, none if it is not there."""
    return np.asarray(edit.get(name, ()), np.int64)


def as_float(edit: Edit) -> ir.Value | None:
    """Operand 0 in float32; None for one in float64, which these operators compute in float64."""
    x = edit.required(0)
    if x.dtype == ir.DataType.FLOAT:
        return x
    return None if x.dtype in (None, ir.DataType.DOUBLE) else edit.before("Cast", [x], {"to": FLOAT})


def transformed(edit: Edit, scores: ir.Value) -> ir.Value | None:
    """What `post_transform` makes of scores; None for one that is not here."""
    kind = text(edit, "post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "SOFTMAX":
        return edit.before("Softmax", [scores], {"axis": -1})
    return edit.before("Sigmoid", [scores]) if kind == "LOGISTIC" else None


def labels(edit: Edit) -> ir.Value | None:
    """The names of the classes, as one known vector."""
    numbers, texts = edit.get("classlabels_ints", edit.get("classlabels_int64s")), edit.get("classlabels_strings")
    if numbers is not None and len(numbers):  # type: ignore[arg-type]
        return edit.constant(numbers)
    if texts is None or not len(texts):  # type: ignore[arg-type]
        return None
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]  # type: ignore[attr-defined]
    return edit.before("Constant", [], {"value": ir.StringTensor(encoded, shape=ir.Shape([len(encoded)]))})


def label_count(edit: Edit) -> int:
    """How many classes have names."""
    return max(len(edit.get(name, ())) for name in ("classlabels_ints", "classlabels_int64s", "classlabels_strings"))  # type: ignore[arg-type]


def best(edit: Edit, scores: ir.Value, names: ir.Value) -> ir.Value:
    """The name of the class with the highest score of each row."""
    return edit.before("Gather", [names, edit.before("ArgMax", [scores], {"axis": 1, "keepdims": 0})])
