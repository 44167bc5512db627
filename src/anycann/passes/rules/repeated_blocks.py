"""Repeating a tensor is copying rows: as a Tile each element would ask for its place by a remainder."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import TensorType, static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node

LEAST_ROW = 8  # elements that lie together before they are repeated


class ExpandOfTile(Rule):
    """Tile(x, r) -> Reshape(Expand(Reshape(x))), with an axis of the repeats before each axis."""

    anchors = frozenset({("", "Tile")})

    def check(self, node: ir.Node) -> str | None:
        type_, repeats = static_type(node.inputs[0]), constant_of(node.inputs[1])
        if type_ is None or repeats is None:
            return "its shape or how often it repeats is not known"
        repeated = [axis for axis, times in enumerate(repeats) if times > 1 and type_.shape[axis] > 1]
        if not repeated or not all(repeats) or 0 in type_.shape:
            return "no axis of several elements is repeated"
        row = math.prod(type_.shape[repeated[-1] :])
        return None if row >= LEAST_ROW else f"what is repeated are {row} elements"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, type_, repeats = node.inputs[0], static_type(node.inputs[0]), constant_of(node.inputs[1])
        assert isinstance(type_, TensorType)
        assert x is not None
        assert repeats is not None
        apart = [*itertools.chain.from_iterable((1, extent) for extent in type_.shape)]
        wide = [*itertools.chain.from_iterable(zip(map(int, repeats), type_.shape, strict=True))]
        whole = [times * extent for times, extent in zip(map(int, repeats), type_.shape, strict=True)]
        name, like = node.name or "Tile", node.outputs[0]
        shapes = [new_constant(graph, f"{name}/shape{n}", np.array(s, np.int64)) for n, s in enumerate((apart, wide, whole))]
        first = typed_node("Reshape", [x, shapes[0]], f"{name}/apart", like, apart)
        expand = typed_node("Expand", [first.outputs[0], shapes[1]], f"{name}/wide", like, wide)
        return [first, expand, new_node("Reshape", [expand.outputs[0], shapes[2]], name, like)]
