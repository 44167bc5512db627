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
        if _saved(kernel) < LEAST_SAVED:
            return ""
        if len(node.outputs) > 1:
            return "the places of the largest elements are asked for"
        if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.attributes.get_int("ceil_mode", 0) != 0:
            return "its padding depends on the size"
        if any(step > 1 and step * 2 > size for step, size in zip(_along(node, "strides", 1), kernel, strict=True)):
            return "its windows hardly overlap"
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        if source is None or result is None:
            return "its shape is not known"
        if node.op_type == "AveragePool" and source.dtype.nbytes < 4:
            return f"the means of rows would be rounded to {source.dtype}"
        several = [size for size, places in zip(kernel, result.shape[2:], strict=True) if places > 1]
        return "there is one window along an axis" if _saved(several) < LEAST_SAVED else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        value, axes, nodes = node.inputs[0], _pooled_axes(node), []
        assert value is not None
        for axis in reversed(axes):
            attributes: dict[str, list[int] | int] = {
                name: _only(list(_along(node, name, 1)), axis, 1) for name in ("kernel_shape", "strides", "dilations")
            }
            attributes["pads"] = _only(list(_along(node, "pads", 0)), axis, 0)
            if node.op_type == "AveragePool":
                attributes["count_include_pad"] = node.attributes.get_int("count_include_pad", 0)
            name = f"{node.name}/axis{axis}" if axis != axes[0] else node.name or ""
            nodes.append(_pool(node, value, axis, attributes, name))
            value = nodes[-1].outputs[0]
        return nodes


def _saved(sizes: Sequence[int]) -> int:
    """Steps that a result needs less with a window of these sizes, if one axis is pooled after the other."""
    large = [size for size in sizes if size > 1]
    return math.prod(large) - sum(large)


def _pooled_axes(node: ir.Node) -> list[int]:
    """The axes with windows of several elements or padding: elements along the others stay what they are."""
    kernel, pads = _along(node, "kernel_shape", 1), _along(node, "pads", 0)
    rank = len(kernel)
    return [axis for axis in range(rank) if kernel[axis] > 1 or pads[axis] or pads[axis + rank]]


def _along(node: ir.Node, name: str, default: int) -> Sequence[int]:
    """An attribute with its default for every axis (twice, for pads)."""
    rank = len(node.attributes.get_ints("kernel_shape", ()))
    return node.attributes.get_ints(name, None) or [default] * (2 * rank if name == "pads" else rank)


def _only(values: list[int], axis: int, other: int) -> list[int]:
    """The values of one axis, `other` for the rest; pads hold the begins of all axes and then their ends."""
    rank = len(values) if other else len(values) // 2
    return [value if number % rank == axis else other for number, value in enumerate(values)]


def _pool(node: ir.Node, source: ir.Value, axis: int, attributes: dict[str, list[int] | int], name: str) -> ir.Node:
    result, before = static_type(node.outputs[0]), static_type(source)
    assert result is not None
    assert before is not None
    pool = new_node(node.op_type, [source], name, node.outputs[0], attributes)
    shape = [*before.shape]
    shape[2 + axis] = result.shape[2 + axis]
    pool.outputs[0].shape = ir.Shape(shape)
    return pool
