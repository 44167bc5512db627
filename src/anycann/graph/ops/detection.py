"""What ends detectors: boxes chosen by their overlaps, and the places of what is not zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.ops.common import retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import OPSET, Lowering, Sample, TensorType, declare, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.routines import Places, Suppression
from anycann.te.tensor import Tensor


# ---- suppression, as passes/rules/suppression.py splits it
def _boxes(rng: np.random.Generator, batch: int, classes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    corner, size = rng.uniform(0, 6, (batch, count, 2)), rng.uniform(-3, 3, (batch, count, 2))
    boxes = np.concatenate([corner, corner + size], axis=2).astype(np.float32)
    scores = (rng.integers(0, 40, (batch, classes, count)) / 40).astype(np.float32)
    return boxes, scores


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for size, count in (((1, 1, 5), 3), ((2, 3, 90), 20), ((1, 2, 700), 300), ((1, 1, 1), 1), ((1, 1, 64), 64)):
        for least in (None, 0.3):
            attributes: dict[str, object] = {"count": count, "overlap": 0.5, "least": least}
            yield Sample(_boxes(rng, *size), attributes)
        boxes, scores = _boxes(rng, *size)
        yield Sample((np.abs(boxes), scores), {"count": count, "overlap": 0.2, "center_point_box": 1})


def _chosen_type(node: ir.Node, inputs: Sequence[TensorType | None]) -> list[TensorType]:
    assert inputs[1] is not None
    return [TensorType(dtypes.int64, (*inputs[1].shape[:2], node.attributes.get_int("count", 0)))]


def _rows(
    boxes: np.ndarray, scores: np.ndarray, count: int, overlap: float, least: float | None = None, center_point_box: int = 0
) -> np.ndarray:
    """Rows (image, class, box) by onnx.reference."""
    names = ["boxes", "scores", "count", "overlap", *([] if least is None else ["least"])]
    node = onnx.helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=center_point_box)
    limits = [np.array([count]), np.array([overlap], np.float32), *([] if least is None else [np.array([least], np.float32)])]
    return np.asarray(evaluate_node(node, OPSET, [boxes, scores, *limits])[0]).reshape(-1, 3)


def _chosen(boxes: np.ndarray, scores: np.ndarray, count: int, **limits: Any) -> np.ndarray:
    """One class of one image after the other."""
    result = np.full((*scores.shape[:2], count), -1, np.int64)
    for image, kind in np.ndindex(*scores.shape[:2]):
        found = _rows(boxes[image : image + 1], scores[image : image + 1, kind : kind + 1], count, **limits)[:, 2]
        result[image, kind, : len(found)] = found
    return result


def _suppressed(boxes: np.ndarray, scores: np.ndarray, *limits: np.ndarray | None, center_point_box: int = 0) -> tuple[np.ndarray]:
    """Limits may be numbers or left out, as for ONNX Runtime; the reference takes vectors alone."""
    count, overlap, least = (None if limit is None else limit.reshape(-1)[0] for limit in (*limits, None, None, None)[:3])
    return (_rows(boxes, scores, count or 0, overlap or 0.0, least, center_point_box),)


declare("NonMaxSuppression", host=_suppressed)


@operator("Suppression", domain=DOMAIN, samples=_samples, infer=_chosen_type, reference=_chosen)
def suppression(context: Lowering) -> Tensor:
    """Numbers of the boxes of each class that are chosen, the best first; -1 behind them."""
    boxes, scores, type_ = context.operand(0), context.operand(1), context.outputs[0]
    least = context.attribute("least")
    limits = (context.integer("count"), context.number("overlap"), None if least is None else float(least))  # type: ignore[arg-type]
    return te.contraction(Suppression(0, boxes, scores, *limits, context.integer("center_point_box") == 1), type_.shape, type_.dtype)


def _listed(chosen: np.ndarray) -> np.ndarray:
    """Rows (image, class, box) of the numbers that are not -1."""
    _, kinds, count = chosen.shape
    at = np.flatnonzero(chosen >= 0)
    rows = np.empty((len(at), 3), np.int64)
    np.divmod(at // count, kinds, out=(rows[:, 0], rows[:, 1]))
    chosen.reshape(-1).take(at, out=rows[:, 2])
    return rows


declare("ListChosen", domain=DOMAIN, reference=_listed)


# ---- places, as passes/rules/places.py splits them
def _nonzero(x: np.ndarray) -> tuple[np.ndarray]:
    """Truth values are searched by numpy a word at a time, numbers one by one; a place along an axis is a remainder. A number has none."""
    flat = np.flatnonzero(x if x.dtype == bool else x != 0)
    places = np.empty((x.ndim, len(flat)), np.int64)
    for axis in range(x.ndim - 1, 0, -1):
        flat, places[axis] = np.divmod(flat, x.shape[axis])
    if x.ndim:
        places[0] = flat
    return (places,)


declare("NonZero", host=_nonzero)


def _places_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((1,), (70,), (5, 33), (3, 1, 7), (2, 3, 4, 5), (300, 2)):
        for most in (1, 2, 9):
            yield Sample((rng.integers(0, most, shape).astype(bool),), outputs=2)
    small = np.array([[0.0, -0.0, 1e-40, np.nan], [-1e-40, np.inf, 0.5, 0.0]], np.float32)
    yield Sample((small,), outputs=2)
    types = ("float64", "float16", "int64", "int32", "int8", "uint8", "uint64", "uint16")
    yield from retyped(Sample((rng.integers(0, 3, (4, 19)).astype(np.float32),), outputs=2), types, 0)


def _places_types(node: ir.Node, inputs: Sequence[TensorType | None]) -> list[TensorType]:
    x = inputs[0]
    assert x is not None
    return [TensorType(dtypes.int32, (len(x.shape), prod(x.shape))), TensorType(dtypes.int32, (1,))]


def _places(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By numpy's own search."""
    found = np.argwhere(x)
    places = np.full((x.ndim, x.size), -1, np.int32)
    places[:, : len(found)] = found.T
    return places, np.array([len(found)], np.int32)


@operator("Places", domain=DOMAIN, samples=_places_samples, infer=_places_types, reference=_places)
def places(context: Lowering) -> Sequence[Tensor]:
    """Where x is not zero, in order, one row an axis with -1 behind the last; and how many there are."""
    x = context.operand(0)
    return [te.contraction(Places(number, x), type_.shape, type_.dtype) for number, type_ in enumerate(context.outputs)]


def _listed_places(places: np.ndarray, count: np.ndarray) -> np.ndarray:
    """As many as there are, as NonZero has them."""
    return places[:, : count[0]].astype(np.int64)


declare("ListPlaces", domain=DOMAIN, reference=_listed_places)
