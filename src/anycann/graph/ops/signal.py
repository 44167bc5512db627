"""Discrete Fourier transforms, as products with tables of sines and cosines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, integer, normal_axis
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Constant, Tensor

FRAMES = "Frames"
LIMIT = 1 << 26  # multiplications; beyond that a fast transform on the host is better


def fourier_table(steps: int, length: int, bins: int, inverse: bool) -> np.ndarray:
    """float64 [time, part, bin, part]: what the parts of an element add to those of a bin; what is behind `length` adds nothing."""
    turn = np.outer(np.arange(steps), np.arange(bins)) % length * (2 * np.pi / max(length, 1))
    cosine, sine = np.cos(turn), np.sin(turn) * (-1 if inverse else 1)
    table = np.stack([np.stack([cosine, -sine], axis=-1), np.stack([sine, cosine], axis=-1)], axis=1)
    table[length:] = 0
    return table / length if inverse else table


def twiddles(length: int, bins: int, inverse: bool, dtype: DType) -> tuple[Constant, Constant]:
    """Tables [time, bin, part]: what the real and the imaginary part of an element add to the two parts of a bin."""
    table = fourier_table(length, length, bins, inverse).astype(dtype.numpy)
    return te.table(table[:, 0]), te.table(table[:, 1])


def _number(context: Lowering, number: int, default: int) -> int:
    value = context.constant(number)
    return default if value is None else int(value.reshape(-1)[0])


def _check(operations: int) -> None:
    if operations > LIMIT:
        raise NotLowered(f"a Fourier transform of {operations} products is faster in the form that recurses")


def _dft_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis, attributes in (
        ((2, 10, 1), 1, {}), ((2, 10, 2), 1, {}), ((2, 10, 2), 1, {"inverse": 1}),
        ((2, 9, 3, 1), 1, {"onesided": 1}), ((2, 3, 8, 2), -2, {}),
        ((2, 10, 1), 1, {"onesided": 1}),
    ):  # fmt: skip
        yield Sample((floats(rng, *shape), None, np.array(axis, np.int64)), dict(attributes), constant=(2,))
    yield Sample((floats(rng, 2, 10, 1), np.array(12, np.int64), np.array(1, np.int64)), constant=(1, 2))
    yield Sample((floats(rng, 2, 10, 2), np.array(7, np.int64), np.array(1, np.int64)), constant=(1, 2))


@operator("DFT", samples=_dft_samples)
def fourier_transform(context: Lowering) -> Tensor:
    """Along one axis; the last axis holds the real and the imaginary part. A shorter signal is continued with zeros."""
    source, type_ = context.operand(0), context.outputs[0]
    axis = normal_axis(_number(context, 2, -2), source.rank)
    length, inverse = _number(context, 1, source.shape[axis]), context.integer("inverse") == 1
    if type_.shape[-1] != 2:
        raise NotLowered("the inverse of a one-sided Fourier transform")
    steps = min(length, source.shape[axis])
    _check(int(np.prod(type_.shape)) * steps)
    real, imaginary = twiddles(length, type_.shape[axis], inverse, type_.dtype)
    complex_ = source.shape[-1] == 2

    def element(*index: Expr) -> Expr:
        *own, part, step = index
        place = (*own[:axis], step, *own[axis + 1 :])
        value = source[(*place, integer(0))] * real[step, own[axis], part]
        return value + source[(*place, integer(1))] * imaginary[step, own[axis], part] if complex_ else value

    return te.reduce("sum", type_.shape, [steps], element)


def _frames(context: Lowering) -> tuple[int, int]:
    """(frame length, step)."""
    window = context.operand(2).shape[0] if context.has(2) else 0
    return _number(context, 3, window), _number(context, 1, 0)


def _stft_samples(rng: np.random.Generator) -> Iterable[Sample]:
    step, length = np.array(8, np.int64), np.array(16, np.int64)
    for shape, onesided, windowed in (((2, 50, 1), 1, True), ((1, 64, 2), 0, True), ((1, 64, 1), 1, False)):
        window = floats(rng, 16, low=0.1, high=1) if windowed else None
        yield Sample((floats(rng, *shape), step, window, length), {"onesided": onesided}, constant=(1, 3))


@operator("STFT", samples=_stft_samples)
def short_time_fourier_transform(context: Lowering) -> Tensor:
    """Overlapping windowed frames of a signal [batch, time, 1 or 2], each transformed: [batch, frame, bin, part]."""
    signal, type_ = context.operand(0), context.outputs[0]
    window = context.operand(2) if context.has(2) else None
    length, step = _frames(context)
    if step <= 0 or length <= 0 or length > signal.shape[1]:
        raise NotLowered(f"frames of {length} every {step} of a signal of {signal.shape[1]}")
    _check(int(np.prod(type_.shape)) * length)
    real, imaginary = twiddles(length, type_.shape[2], inverse=False, dtype=type_.dtype)
    complex_ = signal.rank == 3 and signal.shape[2] == 2

    def sample(batch: Expr, place: Expr, part: int) -> Expr:
        return signal[batch, place] if signal.rank == 2 else signal[batch, place, integer(part)]

    def element(batch: Expr, frame: Expr, bin_: Expr, part: Expr, time: Expr) -> Expr:
        place = frame * step + time
        value = sample(batch, place, 0) * real[time, bin_, part]
        value = value + sample(batch, place, 1) * imaginary[time, bin_, part] if complex_ else value
        return value if window is None else value * window[time]

    return te.reduce("sum", type_.shape, [length], element)


# ---- Frames
def _infer_frames(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    (signal,) = inputs
    assert signal is not None
    length, step = node.attributes.get_int("length", 0), node.attributes.get_int("step", 0)
    return [TensorType(signal.dtype, (signal.shape[0], (signal.shape[1] - length) // step + 1, length))]


def _cut(signal: np.ndarray, length: int, step: int) -> np.ndarray:
    places = range(0, signal.shape[1] - length + 1, step)
    return np.stack([signal[:, place : place + length] for place in places], axis=1)


def _frame_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, length, step in (((2, 50), 16, 8), ((1, 53), 20, 7), ((3, 16), 16, 5)):
        yield Sample((floats(rng, *shape),), {"length": length, "step": step})


@operator(FRAMES, domain=DOMAIN, samples=_frame_samples, infer=_infer_frames, reference=_cut)
def frames(context: Lowering) -> Tensor:
    """The parts of `length` elements that begin every `step` elements of [batch, time]: [batch, frame, length]. They may overlap."""
    signal, step = context.operand(0), context.integer("step")
    return te.compute(context.outputs[0].shape, lambda batch, frame, time: signal[batch, frame * step + time])
