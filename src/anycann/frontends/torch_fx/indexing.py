"""Operators that read or write where indices say."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, axis_of, meta, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation


@translation("embedding.default")
def _embedding(b: Builder, call: Call) -> ir.Value:
    return b.op("Gather", b.value(call.weight), b.value(call.indices), axis=0)


@translation("index_select.default")
def _index_select(b: Builder, call: Call) -> ir.Value:
    if not shape_of(call.self):
        raise NotTranslated("a tensor without dimensions")
    return b.op("Gather", b.value(call.self), b.value(call.index), axis=axis_of(call.dim, len(shape_of(call.self))))


@translation("gather.default")
def _gather(b: Builder, call: Call) -> ir.Value:
    if not shape_of(call.self):
        raise NotTranslated("a tensor without dimensions")
    axis = axis_of(call.dim, len(shape_of(call.self)))
    return b.op("GatherElements", b.value(call.self), b.value(call.index, torch.int64), axis=axis)


@translation("scatter.src", "scatter.value", "scatter_add.default")
def _scatter(b: Builder, call: Call) -> ir.Value:
    shape, dtype = shape_of(call.self), call.result.dtype
    if not shape:
        raise NotTranslated("a tensor without dimensions")
    adds = not hasattr(call, "value") and call.name == "scatter_add"
    index = b.value(call.index, torch.int64)
    if hasattr(call, "value"):
        source = b.full(call.value, shape_of(call.index), dtype)
    elif shape_of(call.src) != shape_of(call.index):
        raise NotTranslated("a scatter that reads part of its source")
    else:
        source = b.value(call.src, dtype)
    reduction = "add" if adds else "none"
    return b.op("ScatterElements", b.value(call.self), index, source, axis=axis_of(call.dim, len(shape)), reduction=reduction)


@translation("index.Tensor", "_unsafe_index.Tensor")
def _index(b: Builder, call: Call) -> ir.Value:
    places = _places(call.indices)
    if len(places) == 1:
        return b.op("Gather", b.value(call.self), b.value(call.indices[places[0]], torch.int64), axis=places[0])
    if places != list(range(len(places))):
        raise NotTranslated("indices that are not those of the first dimensions")
    return b.op("GatherND", b.value(call.self), _joined(b, call.indices[: len(places)]))


@translation("index_put.default", "_unsafe_index_put.default")
def _index_put(b: Builder, call: Call) -> ir.Value:
    places = _places(call.indices)
    if places != list(range(len(places))):
        raise NotTranslated("indices that are not those of the first dimensions")
    index = _joined(b, call.indices[: len(places)])
    shape = (*_broadcast(call.indices[: len(places)]), *shape_of(call.self)[len(places) :])
    values = b.value(call.values, call.result.dtype)
    values = values if shape_of(call.values) == shape else b.op("Expand", values, b.integers(*shape))
    return b.op("ScatterND", b.value(call.self), index, values, reduction="add" if call.accumulate else "none")


def _places(indices: Sequence[torch.fx.Node | None]) -> list[int]:
    """The dimensions that have indices. Raises NotTranslated for conditions, whose result has a size that values decide."""
    if any(index is not None and meta(index).dtype in (torch.bool, torch.uint8) for index in indices):
        raise NotTranslated("a condition as an index")
    return [n for n, index in enumerate(indices) if index is not None]


def _broadcast(indices: Sequence[torch.fx.Node]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*(shape_of(index) for index in indices)))


def _joined(b: Builder, indices: Sequence[torch.fx.Node]) -> ir.Value:
    """Several indices as one tensor whose last axis is the dimension."""
    shape = _broadcast(indices)
    columns = []
    for index in indices:
        value = b.value(index, torch.int64)
        value = value if shape_of(index) == shape else b.op("Expand", value, b.integers(*shape))
        columns.append(b.op("Unsqueeze", value, b.integers(len(shape))))
    return columns[0] if len(columns) == 1 else b.op("Concat", *columns, axis=len(shape))
