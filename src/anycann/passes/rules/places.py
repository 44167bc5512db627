"""How many elements are not zero is only known when they have been looked at; the places of at most all have a shape before."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule

DOMAIN = "anycann"
_INDEX_BYTES, _MOST_BYTES = 4, 64 << 20  # of the places, were all elements not zero


class BoundPlaces(Rule):
    """NonZero(x) -> ListPlaces(Places(x)): a kernel searches, and the host takes as many places as there are."""

    anchors = frozenset({("", "NonZero")})

    def check(self, node: ir.Node) -> str | None:
        x = static_type(node.inputs[0])
        if x is None or not x.shape or 0 in x.shape:
            return "the sizes of what is searched are not known, or it has no axis or no element"
        if len(x.shape) * prod(x.shape) * _INDEX_BYTES > _MOST_BYTES:
            return f"the places of {prod(x.shape)} elements may take more than {_MOST_BYTES >> 20} MiB"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x = static_type(node.inputs[0])
        assert x is not None
        found = ir.Node(DOMAIN, "Places", node.inputs[:1], num_outputs=2, name=f"{node.name}/places")
        for value, name, shape in zip(found.outputs, ("places", "count"), ((len(x.shape), prod(x.shape)), (1,)), strict=True):
            value.name, value.type, value.shape = f"{node.name}/{name}", ir.TensorType(ir.DataType.INT32), ir.Shape(shape)
        return [found, ir.Node(DOMAIN, "ListPlaces", found.outputs, name=node.name)]
