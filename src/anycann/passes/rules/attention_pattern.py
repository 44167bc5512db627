"""What an attention is made of, as exporters write it: the product of queries and keys, what is done to its scores, and the softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import TensorType, static_type
from anycann.passes.rules.rule import constant_of
from anycann.passes.rules.views import Origin, origin, scalar_factor
from anycann.support.records import dataclass
from anycann.te.strided import Strided


class NotAttention(Exception):
    """The pattern does not hold; the text says why."""


@dataclass(frozen=True)
class Mask:
    """What is added to the scores, or (replaces) stands where `condition` does not hold (where it holds, if `inverted`)."""

    value: ir.Value
    at: tuple[int, ...]  # the shape of the scores it is broadcast to
    replaces: bool = False
    inverted: bool = False
    filling: float = 0.0


@dataclass(frozen=True)
class Scores:
    """The product that scores begin with and what is done to it, the last first."""

    product: ir.Node
    masks: tuple[Mask, ...] = ()
    scale: float = 1.0
    softcap: float = 0.0


@dataclass(frozen=True)
class Plan:
    """Everything that the new node needs."""

    query: Origin
    key: Origin
    value: Origin
    masks: tuple[tuple[Mask, Strided], ...]
    scale: float
    softcap: float
    reach: int | None
    empty_is_zero: bool


def plan_attention(node: ir.Node) -> Plan:
    """What the attention that ends in the product `node` is made of. Raises NotAttention."""
    found = softmax_before(node)
    assert found is not None
    softmax, empty_is_zero = found
    weights, result = static_type(node.inputs[0]), static_type(node.outputs[0])
    if weights is None or result is None or len(weights.shape) < 2:
        raise NotAttention("the shapes of the weights are only known when it runs")
    rank = len(softmax.outputs[0].shape or ())
    if softmax.attributes.get_int("axis", -1) not in (-1, rank - 1):
        raise NotAttention("the softmax is not along the keys")
    if weights.shape[:-1] != result.shape[:-1]:
        raise NotAttention("the values have more batch dimensions than the weights")
    _check_uses(node, softmax)
    assert softmax.inputs[0] is not None
    scores = _scores(softmax.inputs[0])
    return _planned(node, scores, weights, result, empty_is_zero)


def _planned(node: ir.Node, scores: Scores, weights: TensorType, result: TensorType, empty_is_zero: bool) -> Plan:
    product = static_type(scores.product.outputs[0])
    query, key, value = (*scores.product.inputs, node.inputs[1])
    assert query is not None
    assert key is not None
    assert value is not None
    assert product is not None
    *batch, rows, keys = weights.shape
    own = product.shape[:-2]
    if product.shape[-2:] != (rows, keys):
        raise NotAttention("the scores are reshaped before the softmax")
    if len(static_type(query).shape) < 2 or len(static_type(key).shape) < 2:  # type: ignore[union-attr]
        raise NotAttention("a product of vectors")
    if any(0 in static_type(operand).shape for operand in (query, key, value)):  # type: ignore[union-attr]
        raise NotAttention("an operand has no elements")

    def heads(view: Strided) -> Strided | None:
        return view.broadcast((*own, *view.shape[-2:])).reshaped((*batch, *view.shape[-2:]))

    def turned(view: Strided) -> Strided | None:
        return heads(view.transposed((*range(len(view.axes) - 2), len(view.axes) - 1, len(view.axes) - 2)))

    q = origin(query, lambda view: _even(heads(view)))
    k = origin(key, lambda view: _even(turned(view)))
    v = origin(value, lambda view: _side_by_side(_even(view.broadcast((*batch, *view.shape[-2:])))))
    if q is None or k is None or v is None:
        raise NotAttention("an operand has no shape that is known")
    masks = tuple((mask, mask_view(mask, weights.shape)) for mask in scores.masks if not _changes_nothing(mask))
    reach, masks = _causal(masks, rows, keys)
    scale = scores.scale * q.factor * k.factor
    if v.factor != 1.0:
        raise NotAttention("the values are scaled")
    return Plan(q, k, v, masks, scale, scores.softcap, reach, empty_is_zero)


def _even(view: Strided | None) -> Strided | None:
    """The view if its rows and columns lie at one distance."""
    return None if view is None or any(axis.step is None for axis in view.axes[-2:]) else view


def _side_by_side(view: Strided | None) -> Strided | None:
    """The view if the elements of a row are neighbours, not one that stands for all."""
    return view if view is not None and (view.axes[-1].extent == 1 or view.axes[-1].step == 1) else None


def _changes_nothing(mask: Mask) -> bool:
    """True for zeros that are added, and for a known condition by which every score stays."""
    known = constant_of(mask.value)
    return known is not None and not (~known if mask.replaces and not mask.inverted else known).any()


def mask_view(mask: Mask, shape: Sequence[int]) -> Strided:
    """A mask as it lies, for scores of `shape`. Raises NotAttention."""
    type_ = static_type(mask.value)
    assert type_ is not None
    view = Strided.contiguous(type_.shape).broadcast(mask.at).reshaped(shape)
    if _even(view) is None:
        raise NotAttention(f"the mask {mask.value.name!r} does not lie at one distance")
    assert view is not None
    return view


def softmax_before(node: ir.Node) -> tuple[ir.Node, bool] | None:
    """(the softmax that makes the first operand, whether what is not a number becomes zero in between); heads may be joined behind it."""
    maker = _producer(node.inputs[0])
    if maker is not None and maker.op_type == "Reshape":
        before, after = static_type(maker.inputs[0]), static_type(maker.outputs[0])
        if before is None or after is None or before.shape[-2:] != after.shape[-2:]:
            return None
        maker = _producer(maker.inputs[0])
    if maker is not None and maker.op_type == "Where":
        zero, test = constant_of(maker.inputs[1]), _producer(maker.inputs[0])
        softmax = _producer(maker.inputs[2])
        same = test is not None and test.op_type == "IsNaN" and test.inputs[0] is maker.inputs[2]
        if softmax is None or softmax.op_type != "Softmax" or not same or zero is None or zero.any():
            return None
        return softmax, True
    return (maker, False) if maker is not None and maker.op_type == "Softmax" else None


def _producer(value: ir.Value | None) -> ir.Node | None:
    """The node of ONNX's own domain that makes a value."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" else None


def _check_uses(node: ir.Node, softmax: ir.Node) -> None:
    """Weights that somebody else reads have to be computed anyway."""
    readers = {use.node for use in softmax.outputs[0].uses()}
    between = {_producer(node.inputs[0]), *(n for n in readers if n.op_type == "IsNaN")}
    if softmax.outputs[0].is_graph_output() or readers - between - {node}:
        raise NotAttention("the weights are also used elsewhere")
    assert node.inputs[0] is not None
    if len(node.inputs[0].uses()) > 1 and node.inputs[0] is not softmax.outputs[0]:
        raise NotAttention("the weights are also used elsewhere")


def _scores(value: ir.Value) -> Scores:
    """What is done to a product until it is `value`. Raises NotAttention."""
    node, type_ = _producer(value), static_type(value)
    if node is None or type_ is None:
        raise NotAttention("the scores are no product")
    if len(value.uses()) > 1 or value.is_graph_output():
        raise NotAttention("the scores are also used elsewhere")
    scaled = scalar_factor(node)
    if node.op_type == "MatMul":
        return Scores(node)
    if scaled is not None:
        inner = _scores(scaled[0])
        if inner.masks or inner.softcap:
            return _scaled_softcap(inner, scaled[1])
        return replace(inner, scale=inner.scale * scaled[1])
    if node.op_type == "Tanh":
        assert node.inputs[0] is not None
        inner = _scores(node.inputs[0])
        if inner.masks or inner.softcap:
            raise NotAttention("a hyperbolic tangent of masked scores")
        return replace(inner, softcap=1.0)
    if node.op_type == "Reshape":
        assert node.inputs[0] is not None
        return _scores(node.inputs[0])
    if node.op_type == "Add":
        return _masked_sum(node, type_.shape)
    if node.op_type == "Where":
        return _masked_choice(node, type_.shape)
    raise NotAttention(f"{node.op_type} of the scores is no part of an attention")


def _scaled_softcap(inner: Scores, factor: float) -> Scores:
    """c * tanh(scores / c): the factor behind the tangent is the cap."""
    if inner.masks or inner.softcap != 1.0:
        raise NotAttention("masked scores are scaled")
    return replace(inner, softcap=factor, scale=inner.scale * factor)


def _masked_sum(node: ir.Node, shape: tuple[int, ...]) -> Scores:
    reasons = []
    for number in (0, 1):
        scores, mask = node.inputs[number], node.inputs[1 - number]
        assert scores is not None
        assert mask is not None
        type_, own = static_type(mask), static_type(scores)
        if type_ is None or own is None or own.shape != shape:
            reasons.append("the scores are broadcast")
            continue
        try:
            inner = _scores(scores)
        except NotAttention as why:
            reasons.append(str(why))
            continue
        return replace(inner, masks=(*inner.masks, Mask(mask, shape)))
    raise NotAttention(reasons[0])


def _masked_choice(node: ir.Node, shape: tuple[int, ...]) -> Scores:
    """Where(condition, scores, c) and Where(condition, c, scores)."""
    condition = node.inputs[0]
    assert condition is not None
    for number in (1, 2):
        known, scores = constant_of(node.inputs[3 - number]), node.inputs[number]
        if known is None or known.size != 1 or scores is None or static_type(condition) is None:
            continue
        own = static_type(scores)
        if own is None or own.shape != shape or not known.reshape(-1)[0]:
            raise NotAttention("the scores are broadcast, or replaced by zero")
        inner = _scores(scores)
        filling = float(known.reshape(-1)[0])
        return replace(inner, masks=(*inner.masks, Mask(condition, shape, True, number == 2, filling)))
    raise NotAttention("scores are chosen from two computed tensors")


def _hidden_from(dtype: np.dtype) -> float:
    """What is added to a score and is so small makes its weight zero: in float16 the least number, as exporters write it."""
    return -6e4 if dtype == np.float16 else -1e30


def _causal(masks: tuple[tuple[Mask, Strided], ...], rows: int, keys: int) -> tuple[int | None, tuple[tuple[Mask, Strided], ...]]:
    """(reach, the other masks) if one of the masks is known and hides exactly the keys after each row's own place."""
    for number, (mask, view) in enumerate(masks):
        known = constant_of(mask.value)
        if known is None or view.axes[-2].step == 0 or any(axis.step != 0 for axis in view.axes[:-2]):
            continue
        table = known.reshape(-1)[-rows * keys :].reshape(rows, keys)
        hidden = (table if mask.inverted else ~table) if mask.replaces else table <= _hidden_from(table.dtype)
        plain = mask.replaces or not table[~hidden].any()
        reach = keys - 1 - int(np.argmax(hidden[-1][::-1] == 0)) - (rows - 1)
        expected = np.arange(keys) > np.arange(rows)[:, None] + reach
        if plain and reach >= 0 and (not mask.replaces or mask.filling <= -1e30) and np.array_equal(hidden, expected):
            return reach, (*masks[:number], *masks[number + 1 :])
    return None, masks
