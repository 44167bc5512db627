"""Writes nodes of one output each, one reading the other."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import new_constant


class NodeWriter:
    """Collects nodes in `nodes`, in order, that the caller puts into a graph; numbers become initialisers of `graph`."""

    def __init__(self, graph: ir.Graph, name: str):
        self._graph, self._name, self.nodes = graph, name, list[ir.Node]()
        self._numbers = 0

    def add(self, op_type: str, *inputs: ir.Value | None, **attributes: ir.Attr | int) -> ir.Value:
        """The result of a new node."""
        node = ir.node(op_type, list(inputs), attributes, name=f"{self._name}/{op_type}{len(self.nodes)}")
        node.outputs[0].name = f"{node.name}:0"
        self.nodes.append(node)
        return node.outputs[0]

    def number(self, array: np.ndarray) -> ir.Value:
        """A known value."""
        self._numbers += 1
        return new_constant(self._graph, f"{self._name}/number{self._numbers}", array)
