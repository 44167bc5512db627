"""Convolutions: the product by a kernel generator, the bias and a fused activation as its elementwise tail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.activations import activation
from anycann.graph.ops.common import all_inside, floats, guarded, infer_as, retyped
from anycann.graph.ops.matmul import ACCUMULATORS
from anycann.graph.ops.windows import halves, window
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import Convolution
from anycann.te.expression import Expr
from anycann.te.tensor import Placeholder, Tensor

PLAIN_LIMIT = 1 << 26  # multiplications a convolution may take without a generator
MOST_COMPUTED = 1 << 24  # weights that a kernel computes and another puts in order


def _conv_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, weights, attributes in (
        ((2, 3, 9, 8), (20, 3, 3, 3), {}), ((1, 20, 5, 7), (6, 20, 1, 1), {"strides": [2, 2]}),
        ((1, 6, 8, 9), (8, 3, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ((1, 20, 6, 7), (20, 1, 3, 3), {"group": 20, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 3, 7, 7), (4, 3, 4, 4), {"auto_pad": "SAME_LOWER"}), ((1, 3, 7, 7), (4, 3, 4, 4), {"auto_pad": "VALID", "strides": [3, 2]}),
        ((2, 3, 20), (5, 3, 4), {"pads": [2, 1], "dilations": [2]}), ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1]}),
    ):  # fmt: skip
        attributes = {"kernel_shape": list(weights[2:]), **attributes}
        yield Sample((floats(rng, *data), floats(rng, *weights), floats(rng, weights[0])), attributes, constant=(1, 2))
        yield Sample((floats(rng, *data), floats(rng, *weights)), attributes, constant=(1,))
        yield Sample((floats(rng, *data), floats(rng, *weights), floats(rng, weights[0])), attributes)
    yield from retyped(Sample((floats(rng, 1, 3, 4, 5), floats(rng, 2, 3, 2, 2), floats(rng, 2))), ("float64", "float16"))


def convolved(context: Lowering, finish: Callable[[Expr], Expr] = lambda a: a) -> Tensor:
    """finish(convolution + bias + addend): the operands are X, W, B and, for FusedConv, Z."""
    data, weights, type_ = context.operand(0), context.operand(1), context.outputs[0]
    slide = window(context, data.shape[2:], weights.shape[2:], type_.shape[2:])
    work = Convolution(data, weights, slide.strides, slide.begins, slide.dilations, context.integer("group", 1), type_.shape[2:])
    return with_bias(context, product(context, work), finish)


def product(context: Lowering, work: Convolution) -> Tensor:
    """The generator's convolution, of a node whose second operand is the weights; a small one of other types is a plain sum.

    Raises NotLowered for a large one.
    """
    type_ = context.outputs[0]
    if type_.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16) and isinstance(work.w, Placeholder):
        work = replace(work, computed=_is_computed(context, 1))
        if not work.computed or math.prod(work.w.shape) <= MOST_COMPUTED:
            return te.contraction(work, type_.shape, dtypes.float32)
    if math.prod(type_.shape) * math.prod(work.w.shape) // type_.shape[1] > PLAIN_LIMIT:
        raise NotLowered(f"a convolution of {type_.dtype}")
    return plain_transposed(work, type_.shape) if work.transposed else plain_convolution(work, type_.shape)


def _is_computed(context: Lowering, number: int) -> bool:
    try:
        return context.constant(number) is None
    except NotLowered:
        return True


def plain_convolution(work: Convolution, shape: tuple[int, ...]) -> Tensor:
    """One sum an output element, kept in float32 for 16-bit floats."""
    rank, per_group, dtype = len(work.strides), work.w.shape[0] // work.group, ACCUMULATORS.get(work.x.dtype, work.x.dtype)

    def element(*index: Expr) -> Expr:
        n, o, *rest = index
        out, (i, *taps) = rest[:rank], rest[rank:]
        steps = zip(out, work.strides, work.pads_begin, taps, work.dilations, strict=True)
        places = tuple(p * s - b + t * d for p, s, b, t, d in steps)
        value = x.cast(work.x[(n, o // per_group * work.w.shape[1] + i, *places)], dtype) * x.cast(work.w[(o, i, *taps)], dtype)
        return guarded(all_inside(places, work.x.shape[2:]), value, 0)

    return te.reduce("sum", shape, work.w.shape[1:], element)


def plain_transposed(work: Convolution, shape: tuple[int, ...]) -> Tensor:
    """The same for a transposed convolution: the input elements that an output element got a part of."""
    rank, per_group, dtype = len(work.strides), work.w.shape[1], ACCUMULATORS.get(work.x.dtype, work.x.dtype)
    inputs = work.x.shape[1] // work.group

    def element(*index: Expr) -> Expr:
        n, o, *rest = index
        out, (i, *taps) = rest[:rank], rest[rank:]
        moved = [p + b - t * d for p, b, t, d in zip(out, work.pads_begin, taps, work.dilations, strict=True)]
        places = tuple(m // s for m, s in zip(moved, work.strides, strict=True))
        whole = [x.equal(m % s, 0) for m, s in zip(moved, work.strides, strict=True) if s > 1]
        present = all_inside(places, work.x.shape[2:])
        channel = o // per_group * inputs + i
        value = x.cast(work.x[(n, channel, *places)], dtype) * x.cast(work.w[(channel, o % per_group, *taps)], dtype)
        return guarded(x.all_of(whole if present is None else [*whole, present]), value, 0)

    return te.reduce("sum", shape, (inputs, *work.w.shape[2:]), element)


def with_bias(context: Lowering, result: Tensor, finish: Callable[[Expr], Expr]) -> Tensor:
    """finish(result + bias of the channel + the fourth operand), either of which may be absent."""
    bias = context.operand(2) if context.has(2) else None
    addend = context.operand(3) if context.has(3) else None

    def element(*index: Expr) -> Expr:
        value: Expr = result[index]
        value = value if bias is None else value + x.cast(bias[index[1]], value.dtype)
        value = value if addend is None else value + x.cast(addend[index], value.dtype)
        return x.cast(finish(value), context.outputs[0].dtype)

    return te.compute(result.shape, element)


@operator("Conv", samples=_conv_samples)
def convolution(context: Lowering) -> Tensor:
    """Cross-correlation of any rank with grouping, strides, dilations and padding."""
    return convolved(context)


def _infer_conv(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    return infer_as("Conv", node, inputs[:3])


def _fused_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for name, parameters in (("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-1.0, 2.0]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", None)):
        attributes: dict[str, object] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": name, "activation_params": parameters}
        yield Sample((floats(rng, 1, 3, 5, 6), floats(rng, 8, 3, 3, 3), floats(rng, 8)), attributes, constant=(1, 2))
    operands = (floats(rng, 1, 3, 5, 6), floats(rng, 8, 3, 3, 3), floats(rng, 8), floats(rng, 1, 8, 3, 4))
    yield Sample(operands, {"activation": "Relu"}, constant=(1, 2))


@operator("FusedConv", domain="com.microsoft", samples=_fused_samples, infer=_infer_conv)
def fused_convolution(context: Lowering) -> Tensor:
    """activation(convolution + bias + Z)."""
    given = context.attribute("activation_params")
    parameters = [] if given is None else [float(v) for v in given]  # type: ignore[attr-defined]
    return convolved(context, activation(context.text("activation"), parameters))


# ---- transposed
def _transposed_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, weights, attributes in (
        ((1, 3, 4, 5), (3, 6, 3, 3), {}), ((2, 20, 3, 4), (20, 5, 2, 2), {"strides": [2, 2]}),
        ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [3, 2], "pads": [1, 0, 0, 2], "output_padding": [1, 1]}),
        ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}), ((1, 3, 4, 5), (3, 2, 2, 2), {"dilations": [2, 3]}),
        ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"}),
        ((2, 3, 7), (3, 4, 3), {"strides": [2], "pads": [1, 1]}), ((1, 2, 3, 3, 3), (2, 3, 2, 2, 2), {"strides": [2, 2, 2]}),
        ((1, 4, 3, 3), (4, 1, 2, 2), {"strides": [2, 2], "group": 4}),
    ):  # fmt: skip
        attributes = {"kernel_shape": list(weights[2:]), **attributes}
        bias = floats(rng, weights[1] * int(str(attributes.get("group", 1))))
        yield Sample((floats(rng, *data), floats(rng, *weights), bias), attributes, constant=(1, 2))
        yield Sample((floats(rng, *data), floats(rng, *weights), bias), attributes)


@operator("ConvTranspose", samples=_transposed_samples)
def transposed_convolution(context: Lowering) -> Tensor:
    """The gradient of a convolution; `output_shape` decides the padding where it is given."""
    data, weights, type_ = context.operand(0), context.operand(1), context.outputs[0]
    slide = window(context, data.shape[2:], weights.shape[2:], data.shape[2:])
    extra = context.integers("output_padding") or (0,) * len(slide.size)
    begins, mode = slide.begins, context.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") or context.integers("output_shape"):
        full = [s * (n - 1) + e + span for s, n, e, span in zip(slide.strides, slide.size, extra, slide.spans, strict=True)]
        begins, _ = halves([max(0, f - o) for f, o in zip(full, type_.shape[2:], strict=True)], mode)
    if any(b < 0 for b in begins):
        raise NotLowered(f"a transposed convolution with the padding {begins}")
    group = context.integer("group", 1)
    work = Convolution(data, weights, slide.strides, begins, slide.dilations, group, type_.shape[2:], transposed=True)
    return with_bias(context, product(context, work), lambda a: a)
