"""Attention as one operator of the device, which reads its operands wherever heads lie; rules of passes/rules make it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.matmul import ACCUMULATORS
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import Attention, Viewed
from anycann.te.strided import Strided
from anycann.te.tensor import Placeholder, Tensor

OPERANDS = 3


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    query, value = (Strided.parse(node.attributes.get_string(name, "")) for name in ("query", "value"))
    own = (*query.shape[:-1], value.shape[-1])
    assert inputs[0] is not None
    return [TensorType(inputs[0].dtype, tuple(own[n] for n in node.attributes.get_ints("order", ())))]


def _reference(*operands: np.ndarray, **attributes: object) -> np.ndarray:
    views = [Strided.parse(str(attributes[name])) for name in ("query", "key", "value")]
    views += [Strided.parse(text) for text in attributes.get("masks", ())]  # type: ignore[attr-defined]
    query, key, value, *masks = (_elements(array, view) for array, view in zip(operands, views, strict=True))
    wide = np.float64 if query.dtype == np.float64 else np.float32
    scores = float(str(attributes["scale"])) * np.einsum("...md,...td->...mt", query.astype(wide), key.astype(wide))
    cap = float(str(attributes.get("softcap", 0.0)))
    scores = cap * np.tanh(scores / cap) if cap else scores
    for mask, replaces in zip(masks, attributes.get("replaces", ()), strict=True):  # type: ignore[call-overload]
        scores = np.where(mask != 0, mask, scores) if replaces else scores + mask
    if attributes.get("reach") is not None:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None] + int(str(attributes["reach"])), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=np.finfo(wide).min))
    weights = weights / weights.sum(-1, keepdims=True)
    weights = np.where(np.isnan(weights), 0, weights) if attributes.get("empty_is_zero") else weights
    result = np.einsum("...mt,...td->...md", weights, value.astype(wide))
    return np.asarray(result.transpose(attributes["order"]), query.dtype, order="C")


def _elements(array: np.ndarray, view: Strided) -> np.ndarray:
    """The elements a view names, each by its own address."""
    places = np.full(view.shape, view.offset)
    for number, axis in enumerate(view.axes):
        steps, inner = np.zeros(axis.extent, np.int64), axis.extent
        for factor in axis.factors if axis.extent else ():
            inner //= factor.extent
            steps += np.arange(axis.extent) // inner % factor.extent * factor.step
        places += steps.reshape(-1, *[1] * (len(view.axes) - number - 1))
    return np.asarray(array.reshape(-1)[places])


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    q, kv = floats(rng, 2, 5, 3, 8), floats(rng, 2, 7, 3, 8)
    views = {"query": "0 2*120 3*8 5*24 8*1", "key": "0 2*168 3*8 7*24 8*1", "value": "0 2*168 3*8 7*24 8*1"}
    yield Sample((q, kv, kv), {**views, "scale": 1 / math.sqrt(8), "order": [0, 2, 1, 3]})


def _in_memory(context: Lowering, number: int) -> Tensor:
    """An operand that has an address: one known number comes as a literal, and becomes a table. Raises NotLowered for what is computed."""
    tensor = context.operand(number)
    if isinstance(tensor, Placeholder):
        return tensor
    known = context.constant(number)
    assert known is not None, "operand() says so if it is absent"
    return te.table(known)


@operator("Attention", domain=DOMAIN, samples=_samples, infer=_infer, reference=_reference)
def attention(context: Lowering) -> Tensor:
    """Operands query, key, value and masks (float32), read through the views that the attributes name; te.contractions.Attention."""
    texts = [context.text(name) for name in ("query", "key", "value")] + list(context.attribute("masks") or ())  # type: ignore[call-overload]
    operands = [_in_memory(context, n) for n in range(len(context.inputs))]
    query, key, value, *masks = (Viewed(tensor, Strided.parse(text)) for tensor, text in zip(operands, texts, strict=True))
    reach, type_ = context.attribute("reach"), context.outputs[0]
    layer = Attention(
        query,
        key,
        value,
        tuple(masks),
        tuple(bool(n) for n in context.integers("replaces") or ()),
        context.number("scale"),
        context.integers("order") or (),
        context.number("softcap"),
        None if reach is None else int(reach),  # type: ignore[call-overload]
        bool(context.integer("empty_is_zero")),
    )
    result = te.contraction(layer, type_.shape, ACCUMULATORS.get(type_.dtype, type_.dtype))
    return te.compute(type_.shape, lambda *index: x.cast(result[index], type_.dtype))
