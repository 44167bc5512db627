"""What only moves elements, or picks the greatest, is done on the bytes: afterwards both sides of it can be integer kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.quantised import BYTES, dequantised, same_parameters
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node

MOVING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "Slice", "Expand")
REARRANGING = frozenset({"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"})


class DequantizeLater(Rule):
    """f(DequantizeLinear(x)) -> DequantizeLinear(f(x)) for one scale, and f one of Reshape, Transpose, MaxPool and the like."""

    anchors = frozenset(("", op_type) for op_type in (*MOVING, "Concat"))
    early = True

    def check(self, node: ir.Node) -> str | None:
        operands = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        found = [dequantised(operand) for operand in operands]
        first = found[0] if found else None
        if first is None or not first.one_for_all:
            return ""
        if first.zero.dtype not in BYTES:
            return f"its operand is {first.zero.dtype}"
        if first.known is not None:
            return "its operand is a constant"
        if len(node.outputs) > 1:
            return "its second output says where the greatest elements are"
        if any(each is None or not same_parameters(each.node, first.node) for each in found[1:]):
            return "its operands have different scales"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        count = len(node.inputs) if node.op_type == "Concat" else 1
        found = [dequantised(operand) for operand in node.inputs[:count]]
        first = found[0]
        assert first is not None
        operands = [*(each.integers for each in found if each is not None), *node.inputs[count:]]
        moved = new_node(node.op_type, operands, f"{node.name}/bytes", node.outputs[0])
        for attribute in node.attributes.values():
            moved.attributes.add(attribute)
        moved.outputs[0].type = ir.TensorType(ir.DataType.from_numpy(first.zero.dtype))
        real = new_node("DequantizeLinear", [moved.outputs[0], *first.node.inputs[1:]], node.name or node.op_type, node.outputs[0])
        return [moved, real]


class QuantizeEarlier(Rule):
    """QuantizeLinear(Concat(x, y), scale, zero) -> Concat(QuantizeLinear(x, scale, zero), QuantizeLinear(y, scale, zero)).

    What makes x rounds it while it is in a register, and a quarter of the bytes are moved.
    """

    anchors = frozenset({("", "QuantizeLinear")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        joined = None if node.inputs[0] is None else node.inputs[0].producer()
        if joined is None or joined.domain != "" or joined.op_type != "Concat":
            return ""
        if not _has_one_scale(node):
            return "it has not one known scale and zero point"
        result = joined.outputs[0]
        alone = len(result.uses()) == 1 and not result.is_graph_output()
        return None if alone and joined.graph is node.graph else "something else reads what is joined"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        assert node.inputs[0] is not None
        joined = node.inputs[0].producer()
        assert joined is not None
        parts = []
        for number, part in enumerate(joined.inputs):
            assert part is not None
            parts.append(new_node("QuantizeLinear", [part, *node.inputs[1:]], f"{node.name}/{number}", node.outputs[0]))
            for attribute in node.attributes.values():
                parts[-1].attributes.add(attribute)
            parts[-1].outputs[0].shape = part.shape
        bytes_ = ir.Node("", "Concat", [part.outputs[0] for part in parts], [joined.attributes["axis"]], name=joined.name)
        return [*parts, bytes_]


class QuantizeBeforeMoving(Rule):
    """QuantizeLinear(f(x), scale, zero) -> f(QuantizeLinear(x, scale, zero)), for one scale, f one of Reshape, Transpose and the like.

    What makes x quantises it while it is in a register, and f moves bytes: 197 x 768 to 12 heads, or those turned, took 45 and 97 us
    and take 13 and 25, for 15 more in the product that makes them (Zen 3).
    """

    anchors = frozenset({("", "QuantizeLinear")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        moves = _moves(node)
        if not moves:
            return ""
        if not _has_one_scale(node):
            return "it has not one known scale and zero point"
        source = moves[-1].inputs[0]
        if source is None or source.producer() is None:
            return "what is moved is not computed here"
        alone = all(len(each.uses()) == 1 and not each.is_graph_output() for each in (source, *(move.outputs[0] for move in moves)))
        return None if alone and all(move.graph is node.graph for move in moves) else "something else reads what is moved"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        moves = _moves(node)
        source, name = moves[-1].inputs[0], node.name or "QuantizeLinear"
        assert source is not None
        new: list[ir.Node] = []
        for old, shape in ((node, source.shape), *((move, move.outputs[0].shape) for move in reversed(moves))):
            moved = new[-1].outputs[0] if new else source
            new.append(new_node(old.op_type, [moved, *old.inputs[1:]], f"{name}/{len(new)}", node.outputs[0]))
            new[-1].outputs[0].shape = shape
            for attribute in old.attributes.values():
                new[-1].attributes.add(attribute)
        node.replace_input_with(0, source)  # what was moved is read once, as `QuantizeByProduct` wants it
        for move in moves:
            graph.remove(move, safe=True)
        return new


def _moves(node: ir.Node) -> list[ir.Node]:
    """The nodes before a QuantizeLinear that give every element another place and do nothing else, the last one first."""
    found: list[ir.Node] = []
    value = node.inputs[0]
    while value is not None and (producer := value.producer()) is not None and producer.domain == "" and producer.op_type in REARRANGING:
        found.append(producer)
        value = producer.inputs[0]
    return found


def _has_one_scale(node: ir.Node) -> bool:
    """True for a QuantizeLinear with one known scale and zero point."""
    parameters = [constant_of(value) for value in node.inputs[1:]]
    return len(parameters) == 2 and all(each is not None and each.size == 1 for each in parameters) and "block_size" not in node.attributes


class QuantizedAgain(Rule):
    """QuantizeLinear(DequantizeLinear(x, scale, zero), scale, zero) -> x."""

    anchors = frozenset({("", "QuantizeLinear")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        found = dequantised(node.inputs[0])
        if found is None:
            return ""
        return None if same_parameters(node, found.node) else "it has other parameters than the values were dequantised with"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        found = dequantised(node.inputs[0])
        assert found is not None
        return [new_node("Identity", [found.integers], node.name or "QuantizeLinear", node.outputs[0])]


class UnsignedBytes(Rule):
    """QuantizeLinear(x, scale, zero) of int8 -> the same of uint8 with zero + 128, where only DequantizeLinear reads it.

    Products of bytes take an unsigned operand and a signed one.
    """

    anchors = frozenset({("", "QuantizeLinear")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        zero = node.inputs[2].const_value if len(node.inputs) > 2 and node.inputs[2] is not None else None
        if zero is None or zero.numpy().dtype != np.int8 or node.attributes.get_int("block_size", 0) != 0:
            return ""
        if node.outputs[0].is_graph_output():
            return "the integers are an output of the graph"
        uses = list(node.outputs[0].uses())
        if any(use.node.op_type != "DequantizeLinear" or use.idx or dequantised(use.node.outputs[0]) is None for use in uses):
            return "something else than DequantizeLinear reads the integers"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        for use in list(node.outputs[0].uses()):
            found = dequantised(use.node.outputs[0])
            assert found is not None
            zero = new_constant(graph, f"{use.node.name}/unsigned", _raised(found.zero))
            use.node.resize_inputs(3)
            use.node.replace_input_with(2, zero)
        own = node.inputs[2]
        assert own is not None
        assert own.const_value is not None
        zero = new_constant(graph, f"{node.name}/unsigned", _raised(own.const_value.numpy()))
        new = new_node("QuantizeLinear", [*node.inputs[:2], zero], node.name or "QuantizeLinear", node.outputs[0])
        if "axis" in node.attributes:
            new.attributes.add(node.attributes["axis"])
        node.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
        return [new]


def _raised(zero: np.ndarray) -> np.ndarray:
    return (zero.astype(np.int16) + 128).astype(np.uint8)
