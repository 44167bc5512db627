"""The largest of a large window is the largest of its rows' largest, its mean the mean of their means: k + k steps instead of k x k."""

from __future__ import annotations

from collections.abc import Sequence
import math

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, new_node

LEAST_SAVED = 12  # comparisons or additions; below that a second pass over memory costs more


class SeparatePool(Rule):
    """MaxPool<[a, b]>(x) -> MaxPool<[a, 1]>(MaxPool<[1, b]>(x)), and so AveragePool: where windows overlap, b first.

    How many elements of a window count is a product of how many do along each axis, so means of means are the mean, padding counted or not.
    """

    anchors = frozenset({("", "MaxPool"), ("", "AveragePool")})

    def check(self, node: ir.Node) -> str | None:
        kernel = node.attributes.get_ints("kernel_shape", ())
        if math.prod(kernel) - sum(kernel) < LEAST_SAVED or len(kernel) < 2:
            return ""
        if len(node.outputs) > 1:
            return "the places of the largest elements are asked for"
        if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.attributes.get_int("ceil_mode", 0) != 0:
            return "its padding depends on the size"
        if any(step * 2 > size for step, size in zip(_along(node, "strides", 1), kernel, strict=True)):
            return "its windows hardly overlap"
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        if source is None or result is None:
            return "its shape is not known"
        if node.op_type == "AveragePool" and source.dtype.nbytes < 4:
            return f"the means of rows would be rounded to {source.dtype}"
        alone = any(size > 1 and places == 1 for size, places in zip(kernel, result.shape[2:], strict=True))
        return "there is one window along an axis" if alone else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        rank = len(node.attributes.get_ints("kernel_shape", ()))
        value = node.inputs[0]
        assert value is not None
        nodes = []
        for axis in reversed(range(rank)):
            attributes: dict[str, list[int] | int] = {
                name: _only(list(_along(node, name, 1)), axis, 1) for name in ("kernel_shape", "strides", "dilations")
            }
            attributes["pads"] = _only(list(_along(node, "pads", 0)), axis, 0)
            if node.op_type == "AveragePool":
                attributes["count_include_pad"] = node.attributes.get_int("count_include_pad", 0)
            nodes.append(_pool(node, value, axis, attributes))
            value = nodes[-1].outputs[0]
        return nodes


def _along(node: ir.Node, name: str, default: int) -> Sequence[int]:
    """An attribute with its default for every axis (twice, for pads)."""
    rank = len(node.attributes.get_ints("kernel_shape", ()))
    return node.attributes.get_ints(name, None) or [default] * (2 * rank if name == "pads" else rank)


def _only(values: list[int], axis: int, other: int) -> list[int]:
    """The values of one axis, `other` for the rest; pads hold the begins of all axes and then their ends."""
    rank = len(values) if other else len(values) // 2
    return [value if number % rank == axis else other for number, value in enumerate(values)]


def _pool(node: ir.Node, source: ir.Value, axis: int, attributes: dict[str, list[int] | int]) -> ir.Node:
    result, before = static_type(node.outputs[0]), static_type(source)
    assert result is not None
    assert before is not None
    pool = new_node(node.op_type, [source], f"{node.name}/axis{axis}" if axis else node.name or "", node.outputs[0], attributes)
    shape = [*before.shape]
    shape[2 + axis] = result.shape[2 + axis]
    pool.outputs[0].shape = ir.Shape(shape)
    return pool
