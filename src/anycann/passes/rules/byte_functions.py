"""An activation between 8-bit tensors is a table of 256 bytes: whatever it computes, it can only make so much of one byte.

x -> DequantizeLinear -> Sigmoid, Mul by x -> QuantizeLinear        SiLU: 25 instructions a vector, or one look into the table
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node, has_reference
from anycann.graph.ops.byte_table import BYTE_TABLE
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import OPSET, static_type
from anycann.passes.rules.quantised import BYTES, dequantised
from anycann.passes.rules.rule import Rule, constant_of, new_constant

# What a node costs, in instructions a vector or about that. A look into a table costs eight where bytes are permuted.
_COST = {
    **dict.fromkeys(("Sigmoid", "Tanh", "Erf", "Exp", "Log", "Softplus", "Gelu", "Mish", "Elu", "Selu", "Celu", "Pow", "Swish"), 16),
    **dict.fromkeys(("Div", "Sqrt", "Softsign", "Reciprocal"), 6),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), 4),
    **dict.fromkeys(("LeakyRelu", "ThresholdedRelu", "Clip"), 2),
    **dict.fromkeys(("Mul", "Add", "Sub", "Neg", "Abs", "Relu", "Min", "Max", "Identity"), 1),
    "QuantizeLinear": 4,
    "DequantizeLinear": 3,
    BYTE_TABLE: 8,
}
_ENOUGH = 16
_MOST_NODES = 40  # to look back through


class TabulateBytes(Rule):
    """QuantizeLinear(f(DequantizeLinear(x))) -> ByteTable(x, what f makes of every byte), for an elementwise f that costs more than that.

    f may quantise and dequantise again on its way.
    """

    anchors = frozenset({("", "QuantizeLinear")})

    def check(self, node: ir.Node) -> str | None:
        function = _Function(node)
        source = function.source
        if source is None:
            return function.reason
        made, read = static_type(node.outputs[0]), static_type(source)
        if made is None or read is None or made.shape != read.shape:
            return "its result has another shape than the bytes"
        cost = sum(_COST[each.op_type] for each in function.nodes)
        if cost < _ENOUGH:
            return "computing it costs no more than looking it up"
        unknown = next((each.op_type for each in function.nodes if not has_reference(each.domain, each.op_type, OPSET)), None)
        return None if unknown is None else f"{unknown} has no numpy meaning"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        function = _Function(node)
        operands = [function.source, new_constant(graph, f"{node.name}/table", function.table())]
        return [ir.Node(DOMAIN, BYTE_TABLE, operands, name=node.name)]


class _Function:
    """The nodes from a QuantizeLinear back to the one tensor of bytes that it is a function of, in an order that runs.

    source: those bytes, the first there are; None if there are none or several, and `reason` then says so.
    """

    def __init__(self, last: ir.Node):
        self.last, self.reason = last, ""
        self._known: dict[ir.Value, ir.Value | None] = {}
        self.source = self._of_reals(last.inputs[0], _MOST_NODES) if _is_byte_quantisation(last) else None
        self.nodes: list[ir.Node] = []
        if self.source is not None:
            self._collect(last)

    def _of_reals(self, value: ir.Value | None, most: int) -> ir.Value | None:
        """The bytes that a value is a function of, if they are one tensor no more than `most` nodes away."""
        if value is None or most == 0:
            return None
        if value not in self._known:
            self._known[value] = self._look_back(value, most)
        return self._known[value]

    def _look_back(self, value: ir.Value, most: int) -> ir.Value | None:
        node, bytes_ = value.producer(), dequantised(value)
        if bytes_ is not None:
            known = bytes_.one_for_all and bytes_.zero.size == 1 and bytes_.zero.dtype in BYTES and bytes_.known is None
            return self._of_bytes(bytes_.integers, most - 1) if known else None
        if node is None or node.domain != "" or node.op_type not in _COST or len(node.outputs) != 1:
            return None
        found = {self._of_reals(operand, most - 1) for operand in node.inputs if operand is not None and not _is_number(operand)}
        if len(found) > 1:
            self.reason = "several tensors go into it"
        return found.pop() if len(found) == 1 else None

    def _of_bytes(self, value: ir.Value, most: int) -> ir.Value:
        """The bytes that bytes are a function of: at least they themselves."""
        node = value.producer()
        if node is not None and most > 0 and _is_table(node):
            assert node.inputs[0] is not None
            return self._of_bytes(node.inputs[0], most - 1)
        before = self._of_reals(node.inputs[0], most - 1) if node is not None and _is_byte_quantisation(node) else None
        return before or value

    def _collect(self, node: ir.Node) -> None:
        """A node behind all that it needs."""
        for value in node.inputs:
            maker = None if value is None or value is self.source else value.producer()
            if maker is not None and maker not in self.nodes:
                self._collect(maker)
        self.nodes.append(node)

    def table(self) -> np.ndarray:
        """What the last node makes of bytes 0 to 255."""
        assert self.source is not None
        assert self.source.dtype is not None
        values = {self.source: np.arange(256, dtype=np.uint8).view(self.source.dtype.numpy())}
        for node in self.nodes:
            operands = [None if value is None else values.get(value, constant_of(value)) for value in node.inputs]
            values[node.outputs[0]] = np.asarray(evaluate_node(ir.to_proto(node), OPSET, operands)[0])
        return values[self.last.outputs[0]].reshape(256)


def _is_table(node: ir.Node) -> bool:
    return (node.domain, node.op_type) == (DOMAIN, BYTE_TABLE)


def _is_byte_quantisation(node: ir.Node) -> bool:
    """True for a QuantizeLinear to bytes by one known scale and zero point."""
    if node.domain != "" or node.op_type != "QuantizeLinear":
        return False
    parameters = [constant_of(value) for value in node.inputs[1:]]
    known = all(each is not None and each.size == 1 for each in parameters)
    return known and node.outputs[0].dtype is not None and np.dtype(node.outputs[0].dtype.numpy()) in BYTES


def _is_number(value: ir.Value) -> bool:
    known = constant_of(value)
    return known is not None and known.size == 1
