"""One node under the hands of an upgrade rule: read and take attributes, change inputs, put nodes before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.sources import describe, inherit_sources
from anycann.support.errors import UnsupportedError


class Edit:
    """Changes to one node of a graph. New nodes inherit the node's sources."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self.graph = graph
        self.node = node

    def input(self, index: int) -> ir.Value | None:
        """Input `index`, or None when it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def required(self, index: int) -> ir.Value:
        """Input `index`, which the operator's schema requires."""
        value = self.input(index)
        if value is None:
            raise UnsupportedError(f"{describe(self.node)} lacks its input {index}")
        return value

    def rank(self, index: int) -> int | None:
        """The rank of input `index` as far as the model states it."""
        value = self.input(index)
        return None if value is None or value.shape is None else len(value.shape)

    def take(self, name: str, default: object = None) -> object:
        """The value of an attribute, which the node loses."""
        attribute = self.node.attributes.pop(name, None)
        return default if attribute is None else attribute.value

    def take_ints(self, name: str) -> list[int] | None:
        """`take` for a list of integers."""
        value = self.take(name)
        return None if value is None else [int(item) for item in value]  # type: ignore[attr-defined]

    def get(self, name: str, default: object = None) -> object:
        """The value of an attribute."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.value

    def set(self, name: str, value: object) -> None:
        """Give the node an attribute."""
        self.node.attributes[name] = ir.convenience.convert_attribute(name, value)  # type: ignore[arg-type]

    def set_inputs(self, *inputs: ir.Value | None) -> None:
        """Make `inputs` the node's inputs; absent ones at the end are dropped."""
        kept = list(inputs)
        while kept and kept[-1] is None:
            kept.pop()
        self.node.resize_inputs(len(kept))
        for index, value in enumerate(kept):
            self.node.replace_input_with(index, value)

    def constant(self, value: object, dtype: str = "int64") -> ir.Value:
        """The output of a new Constant node."""
        array = np.asarray(value, dtype=dtype)
        output = self.before("Constant", [], {"value": ir.Tensor(array)})
        output.const_value, output.type, output.shape = (
            ir.Tensor(array),
            ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            ir.Shape(array.shape),
        )
        return output

    def scalar_like(self, number: float, index: int) -> ir.Value:
        """A new constant of rank 0 in the element type of input `index`."""
        like = self.required(index)
        if like.dtype is not None:
            output = self.before("Constant", [], {"value": ir.Tensor(np.asarray(number, like.dtype.numpy()), like.dtype)})
            output.const_value, output.type, output.shape = output.producer().attributes["value"].as_tensor(), like.type, ir.Shape([])  # type: ignore[union-attr]
            return output
        return self.before("CastLike", [self.constant(number, "float32"), like])

    def before(self, op_type: str, inputs: Sequence[ir.Value | None], attributes: dict[str, object] | None = None) -> ir.Value:
        """The output of a new node that runs before this one."""
        return self.add(ir.node(op_type, inputs, attributes or {}))  # type: ignore[arg-type]

    def add(self, node: ir.Node) -> ir.Value:
        """The output of a node of any domain, put before this one."""
        self._adopt(node)
        self.graph.insert_before(self.node, node)
        return node.outputs[0]

    def after(self, op_type: str, inputs: Callable[[ir.Value], Sequence[ir.Value]], attributes: dict[str, object] | None = None) -> None:
        """Put a new node after output 0: `inputs` says what it reads, given that output. It takes over the output's name and users."""
        old = self.node.outputs[0]
        new = ir.Value(name=old.name, type=old.type, shape=old.shape)
        old.name = f"{old.name}/{self.node.op_type}"
        old.shape = None
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        node = ir.Node("", op_type, inputs(old), list(ir.convenience.convert_attributes(attributes or {})), outputs=[new])  # type: ignore[arg-type]
        self._adopt(node)
        self.graph.insert_after(self.node, node)

    def replace_output(self, index: int, value: ir.Value) -> None:
        """Let `value` take over the name and the users of output `index`."""
        old = self.node.outputs[index]
        value.type, value.shape = old.type or value.type, old.shape or value.shape
        old.replace_all_uses_with(value, replace_graph_outputs=True)
        value.name, old.name = old.name, f"{old.name}/unused"

    def remove(self) -> None:
        """Take the node, whose outputs nobody uses any more, out of the graph."""
        self.graph.remove(self.node, safe=True)

    def _adopt(self, node: ir.Node) -> None:
        inherit_sources([node], [self.node])
        for number, output in enumerate(node.outputs):
            if output.name is None:
                output.name = f"{self.node.name or self.node.op_type}/{node.op_type}_{number}"
