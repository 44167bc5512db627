"""Convolutions of one image that are added are one convolution: of the sum of their weights, each where its taps lie.

Networks that are trained with branches (RepVGG, MobileOne, RepViT) are often exported with them: taps of 3 x 3 and 1 x 1, several times,
and the normalised image itself, which is a convolution by one tap as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node, typed_node
from anycann.support.records import dataclass

MOST_SUMMANDS = 8


@dataclass(frozen=True)
class _Taps:
    """Where the taps of a branch lie on each axis."""

    extent: tuple[int, ...]
    pads: tuple[int, ...]  # before the first pixel
    dilations: tuple[int, ...]

    def starts(self, small: _Taps) -> tuple[int, ...] | None:
        """The tap of these that the first tap of `small` lies on, of each axis, if all of those lie on some of these."""
        found = []
        for many, few, padded, less, step, others in zip(
            self.extent, small.extent, self.pads, small.pads, self.dilations, small.dilations, strict=True
        ):
            apart = padded - less
            same_steps = few == 1 or step == others
            if not same_steps or apart < 0 or apart % step or apart // step + few > many:
                return None
            found.append(apart // step)
        return tuple(found)


@dataclass(frozen=True)
class _Nested:
    """Two branches, of which the taps of `small` lie on those of `large`, the first on the tap `starts`; `large` is a convolution."""

    large: ir.Node
    small: ir.Node
    starts: tuple[int, ...]


class SumOfConvolutions(Rule):
    """Conv(x, w, b) + ... + Conv(x, v, c) -> Conv(x, w + v, b + c) + ..., where the taps of one lie on some of the other's.

    The second may be BatchNormalization(x), which has one tap.
    """

    anchors = frozenset({("", "Add")})

    def check(self, node: ir.Node) -> str | None:
        pair = _pair(node)
        if pair is None:
            return ""
        return None if _nested(*pair) is not None else "the taps of one convolution do not lie on those of the other"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        pair = _pair(node)
        assert pair is not None
        nested, name, (first, second) = _nested(*pair), node.name or "Add", pair
        assert nested is not None
        weights, bias = _sum(nested, first)
        dtype = _constant(nested.large, 1).dtype
        w = new_constant(graph, f"{name}/weights", weights.astype(dtype))
        b = new_constant(graph, f"{name}/bias", bias.astype(dtype))
        fused = new_node("Conv", [first.inputs[0], w, b], f"{name}/convolution", first.outputs[0])
        for attribute in nested.large.attributes.values():
            fused.attributes.add(attribute)
        rest = [value for value in _leaves(node) if value not in (first.outputs[0], second.outputs[0])]
        return [fused, *_added(fused.outputs[0], rest, name)]


def _added(first: ir.Value, rest: Sequence[ir.Value], name: str) -> list[ir.Node]:
    """Additions of the other summands, one by one."""
    nodes: list[ir.Node] = []
    for number, value in enumerate(rest):
        shape = np.broadcast_shapes(_shape(first), _shape(value))
        nodes.append(typed_node("Add", [first, value], f"{name}/{number}", first, shape))
        first = nodes[-1].outputs[0]
    return nodes


def _pair(node: ir.Node) -> tuple[ir.Node, ir.Node] | None:
    """The first two summands that are convolutions of the same values, by constants; the first is no normalization."""
    leaves = _leaves(node)
    if any(value.shape is None or not value.shape.is_static() for value in leaves):
        return None
    branches = [branch for value in leaves if (branch := _branch(value)) is not None]
    for first, second in combinations(sorted(branches, key=lambda branch: branch.op_type != "Conv"), 2):
        if first.op_type == "Conv" and first.inputs[0] is second.inputs[0] and _fit(first, second):
            return first, second
    return None


def _leaves(node: ir.Node) -> list[ir.Value]:
    """The summands, through additions that nobody else reads; of long sums the nearest."""
    found: list[ir.Value] = []
    waiting = list(node.inputs)
    while waiting:
        value = waiting.pop(0)
        assert value is not None
        producer = value.producer()
        adds = producer is not None and producer.op_type == "Add" and not producer.domain and _is_read_once(value)
        if producer is not None and adds and len(found) + len(waiting) < MOST_SUMMANDS:
            waiting[:0] = producer.inputs
        else:
            found.append(value)
    return found


def _branch(value: ir.Value) -> ir.Node | None:
    """The convolution or normalization that makes a summand and nothing else, by constants."""
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Conv", "BatchNormalization") or not _is_read_once(value):
        return None
    known = all(each is None or each.const_value is not None for each in node.inputs[1:])
    padded = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
    return node if known and padded and not node.attributes.get_int("training_mode", 0) else None


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _fit(first: ir.Node, second: ir.Node) -> bool:
    """True for results of the same shape and type, of the same steps and groups."""
    a, b = first.outputs[0], second.outputs[0]
    if a.dtype != b.dtype or _shape(a) != _shape(b):
        return False
    if second.op_type == "BatchNormalization":
        return all(step == 1 for step in _steps(first)) and first.inputs[0] is not None and _shape(first.inputs[0]) == _shape(a)
    return _steps(first) == _steps(second) and first.attributes.get_int("group", 1) == second.attributes.get_int("group", 1)


def _steps(node: ir.Node) -> tuple[int, ...]:
    return tuple(node.attributes.get_ints("strides", [1] * (_constant(node, 1).ndim - 2)))


def _nested(first: ir.Node, second: ir.Node) -> _Nested | None:
    """Which of the two has taps under all taps of the other, if one has."""
    one, other = _taps(first, first), _taps(second, first)
    if (starts := one.starts(other)) is not None:
        return _Nested(first, second, starts)
    if (starts := other.starts(one)) is not None:
        return _Nested(second, first, starts)
    return None


def _taps(node: ir.Node, like: ir.Node) -> _Taps:
    """The taps of a branch; a normalization has one on each axis of `like`."""
    axes = _constant(like, 1).ndim - 2
    if node.op_type != "Conv":
        return _Taps((1,) * axes, (0,) * axes, (1,) * axes)
    pads, dilations = node.attributes.get_ints("pads", [0] * 2 * axes), node.attributes.get_ints("dilations", [1] * axes)
    return _Taps(_constant(node, 1).shape[2:], tuple(pads[:axes]), tuple(dilations))


def _sum(nested: _Nested, like: ir.Node) -> tuple[np.ndarray, np.ndarray]:
    """Weights [M, C / group, ...] and bias [M] of both together, in float64."""
    weights, bias = _factors(nested.large, like)
    added, more = _factors(nested.small, like)
    shared = [slice(at, at + count) for at, count in zip(nested.starts, added.shape[2:], strict=True)]
    weights[(slice(None), slice(None), *shared)] += added
    return weights, bias + more


def _factors(node: ir.Node, like: ir.Node) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of a branch as a convolution in as many groups as `like`, copies in float64."""
    if node.op_type == "Conv":
        weights = _constant(node, 1).astype(np.float64)
        biased = len(node.inputs) > 2 and node.inputs[2] is not None
        return weights, _constant(node, 2).astype(np.float64) if biased else np.zeros(len(weights))
    scale, shift, mean, variance = (_constant(node, number).astype(np.float64) for number in range(1, 5))
    factor, axes = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5)), _constant(like, 1).ndim - 2
    own = len(factor) // like.attributes.get_int("group", 1)
    weights = np.zeros((len(factor), own))
    weights[np.arange(len(factor)), np.arange(len(factor)) % own] = factor
    return weights.reshape(*weights.shape, *[1] * axes), shift - mean * factor


def _constant(node: ir.Node, operand: int) -> np.ndarray:
    known = constant_of(node.inputs[operand])
    assert known is not None
    return known


def _shape(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return tuple(value.shape.numpy())
