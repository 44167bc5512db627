"""What a fusion rule is, and the pieces rules are written with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir


class Rule(ABC):
    """`before -> after` stands in the docstring of each rule."""

    anchors: frozenset[tuple[str, str]]  # (domain, op_type) of the pattern's last node
    early = False  # applied before types are known: for operators that ONNX cannot infer

    @property
    def name(self) -> str:
        """The name to switch the rule off by."""
        return type(self).__name__

    @abstractmethod
    def check(self, node: ir.Node) -> str | None:
        """None if the rule applies at this node; else the reason as a sentence, "" if the node is nothing like the pattern."""

    @abstractmethod
    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        """The nodes that take the place of `node`; the outputs of the last one replace its outputs."""


def replace(graph: ir.Graph, node: ir.Node, new: Sequence[ir.Node]) -> None:
    """Put `new` in the place of `node`. Names and types of the outputs stay; outputs the last new node lacks are unused."""
    graph.insert_before(node, list(new))
    for old, value in zip(node.outputs, new[-1].outputs, strict=False):
        stand_for(old, value)
    graph.remove(node, safe=True)


def stand_for(old: ir.Value, value: ir.Value) -> None:
    """`value` is what `old` was to everyone, by its name as well."""
    value.type, value.shape, value.name = old.type, old.shape, old.name
    old.name = f"{old.name}/replaced"
    old.replace_all_uses_with(value, replace_graph_outputs=True)


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The value if it is known while compiling."""
    return None if value is None or value.const_value is None else value.const_value.numpy()


def new_constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initialiser of the graph; the name is made unique."""
    unique = name
    while unique in graph.initializers:
        unique += "_"
    tensor = ir.tensor(np.asarray(array, order="C"), name=unique)  # ascontiguousarray gives a number an axis
    value = ir.Value(name=unique, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def new_node(
    op_type: str, inputs: Sequence[ir.Value | None], name: str, like: ir.Value, attributes: Mapping[str, object] | None = None
) -> ir.Node:
    """A node with one output of the type of `like`."""
    attrs = [ir.convenience.convert_attribute(key, value) for key, value in (attributes or {}).items()]  # type: ignore[arg-type]
    node = ir.Node("", op_type, list(inputs), attrs, name=name)
    node.outputs[0].type, node.outputs[0].shape, node.outputs[0].name = like.type, like.shape, f"{name}:0"
    return node


def typed_node(
    op_type: str, inputs: Sequence[ir.Value | None], name: str, like: ir.Value, shape: Sequence[int], **attributes: object
) -> ir.Node:
    """A node with one output of the element type of `like` and a shape of its own."""
    node = new_node(op_type, inputs, name, like, attributes)
    node.outputs[0].shape = ir.Shape(shape)
    return node
