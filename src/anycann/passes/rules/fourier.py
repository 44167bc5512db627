"""Fourier transforms of known length are matrix products with a table of cosines and sines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.signal import FRAMES, fourier_table
from anycann.graph.registry import TensorType, static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, typed_node
from anycann.te import dtypes

LARGEST = 1 << 22  # elements of a table; with more of them a fast transform does less


class ProductOfFourier(Rule):
    """DFT(x) -> MatMul(x, table), with the axis moved before the two parts of a number, and joined with them."""

    anchors = frozenset({("", "DFT")})

    def check(self, node: ir.Node) -> str | None:
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        if source is None or result is None or source.dtype is not dtypes.float32:
            return "its shapes are only known when it runs, or its elements are no float32"
        if any(value is not None and constant_of(value) is None for value in node.inputs[1:]):
            return "its axis or its length is only known when it runs"
        if result.shape[-1] != 2:
            return "it is the inverse of a one-sided transform"
        axis = _axis(node, source)
        parts, steps, bins = source.shape[-1], source.shape[axis], result.shape[axis]
        return _too_large(steps * parts * bins * 2)

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        x, like, name = node.inputs[0], node.outputs[0], node.name or "DFT"
        assert x is not None
        assert source is not None
        assert result is not None
        axis, length = _axis(node, source), constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
        steps, bins, last = source.shape[axis], result.shape[axis], len(source.shape) - 1
        order = [*(a for a in range(last) if a != axis), axis, last]
        outer, nodes = [source.shape[a] for a in order[:-2]], list[ir.Node]()
        if axis != last - 1:
            nodes.append(typed_node("Transpose", [x], f"{name}/moved", x, [source.shape[a] for a in order], perm=order))
            x = nodes[-1].outputs[0]
        table = fourier_table(
            steps, steps if length is None else int(length.reshape(-1)[0]), bins, node.attributes.get_int("inverse", 0) == 1
        )
        nodes += _product(graph, x, outer, table[:, : source.shape[-1]], name, like)
        if axis != last - 1:
            back = [order.index(a) for a in range(last + 1)]
            nodes.append(typed_node("Transpose", [nodes[-1].outputs[0]], f"{name}/back", like, result.shape, perm=back))
        return nodes


class ProductOfFrames(Rule):
    """STFT(x, step, window, length) -> MatMul(Frames(x), table), the window in the table."""

    anchors = frozenset({("", "STFT")})

    def check(self, node: ir.Node) -> str | None:
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        if source is None or result is None or source.dtype is not dtypes.float32:
            return "its shapes are only known when it runs, or its elements are no float32"
        if any(value is not None and constant_of(value) is None for value in node.inputs[1:]):
            return "its window, its length or its step is only known when it runs"
        if _step(node) <= 0 or not 0 < _length(node) <= source.shape[1]:
            return f"frames of {_length(node)} every {_step(node)} of a signal of {source.shape[1]}"
        return _too_large(_length(node) * _parts(source) * result.shape[2] * 2)

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        source, result = static_type(node.inputs[0]), static_type(node.outputs[0])
        x, like, name = node.inputs[0], node.outputs[0], node.name or "STFT"
        assert x is not None
        assert source is not None
        assert result is not None
        parts, length, window = _parts(source), _length(node), constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
        flat = new_constant(graph, f"{name}/flat", np.array([source.shape[0], source.shape[1] * parts], np.int64))
        lines = typed_node("Reshape", [x, flat], f"{name}/lines", x, [source.shape[0], source.shape[1] * parts])
        cut = ir.Node(
            DOMAIN,
            FRAMES,
            [lines.outputs[0]],
            [ir.AttrInt64("length", length * parts), ir.AttrInt64("step", _step(node) * parts)],
            name=f"{name}/frames",
        )
        cut.outputs[0].type, cut.outputs[0].name = x.type, f"{name}/frames:0"
        cut.outputs[0].shape = ir.Shape([*result.shape[:2], length * parts])
        table = fourier_table(length, length, result.shape[2], inverse=False)
        table = table if window is None else table * window.astype(np.float64)[:, None, None, None]
        return [lines, cut, *_product(graph, cut.outputs[0], list(result.shape[:2]), table[:, :parts], name, like)]


def _product(graph: ir.Graph, x: ir.Value, outer: list[int], table: np.ndarray, name: str, like: ir.Value) -> list[ir.Node]:
    """x, of numbers of one or two parts along its last axes, times the table [time, part, bin, part], in the shape outer, bin, part."""
    steps, parts, bins, _ = table.shape
    shape, nodes = static_type(x), list[ir.Node]()
    assert shape is not None
    joined, apart = [*outer, steps * parts], [*outer, bins, 2]
    if list(shape.shape) != joined:
        nodes.append(typed_node("Reshape", [x, _sizes(graph, f"{name}/joined", joined)], f"{name}/joined", x, joined))
        x = nodes[-1].outputs[0]
    known = new_constant(graph, f"{name}/table", table.reshape(steps * parts, bins * 2).astype(np.float32))
    nodes.append(typed_node("MatMul", [x, known], name, like, [*outer, bins * 2]))
    nodes.append(typed_node("Reshape", [nodes[-1].outputs[0], _sizes(graph, f"{name}/apart", apart)], f"{name}/apart", like, apart))
    return nodes


def _sizes(graph: ir.Graph, name: str, shape: Sequence[int]) -> ir.Value:
    return new_constant(graph, f"{name}/shape", np.array(shape, np.int64))


def _too_large(elements: int) -> str | None:
    return None if 0 < elements <= LARGEST else f"its table would have {elements} elements; up to {LARGEST} are multiplied with"


def _axis(node: ir.Node, source: TensorType) -> int:
    axis = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    return (-2 if axis is None else int(axis.reshape(-1)[0])) % len(source.shape)


def _parts(source: TensorType) -> int:
    return source.shape[2] if len(source.shape) == 3 else 1


def _step(node: ir.Node) -> int:
    step = constant_of(node.inputs[1])
    return 0 if step is None else int(step.reshape(-1)[0])


def _length(node: ir.Node) -> int:
    """Of a frame: as stated, or of the window."""
    window, length = (constant_of(node.inputs[n]) if len(node.inputs) > n else None for n in (2, 3))
    return int(length.reshape(-1)[0]) if length is not None else 0 if window is None else len(window)
