"""Convolutions: `onnx.reference` pads SAME and VALID, and the bias of groups, otherwise than the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import itertools

import numpy as np
from onnx.reference.op_run import OpRun

from anycann.graph.reference.base import MicrosoftOp, sigmoid

Ints = Sequence[int]


def convolve(x: np.ndarray, w: np.ndarray, strides: Ints, dilations: Ints, pads: Ints, group: int) -> np.ndarray:
    """Cross-correlation of [N, C, *size] with [O, C / group, *kernel], one product a tap."""
    rank = x.ndim - 2
    padded = np.pad(x, ((0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)))
    spans = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    out = [(n - span) // s + 1 for n, span, s in zip(padded.shape[2:], spans, strides, strict=True)]
    grouped, weights = _grouped(padded, group), w.reshape(group, w.shape[0] // group, *w.shape[1:])
    y = np.zeros((x.shape[0], group, w.shape[0] // group, *out), x.dtype)
    for tap in _taps(w.shape[2:]):
        places = [slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(tap, dilations, out, strides, strict=True)]
        y += np.einsum("ngi...,goi->ngo...", _at(grouped, places), _at(weights, tap))
    return y.reshape(x.shape[0], w.shape[0], *out)


def convolve_transposed(x: np.ndarray, w: np.ndarray, strides: Ints, dilations: Ints, begins: Ints, out: Ints, group: int) -> np.ndarray:
    """The gradient of `convolve`: [N, C, *size] with [C, O / group, *kernel] gives [N, O, *out]; `begins` elements are cut off."""
    spans = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [max((n - 1) * s + span, b + o) for n, s, span, b, o in zip(x.shape[2:], strides, spans, begins, out, strict=True)]
    grouped, weights = _grouped(x, group), w.reshape(group, w.shape[0] // group, *w.shape[1:])
    y = np.zeros((x.shape[0], group, w.shape[1], *full), x.dtype)
    for tap in _taps(w.shape[2:]):
        places = [slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True)]
        _at(y, places)[...] += np.einsum("ngi...,gio->ngo...", grouped, _at(weights, tap))
    kept = [slice(b, b + o) for b, o in zip(begins, out, strict=True)]
    return _at(y, kept).reshape(x.shape[0], w.shape[1] * group, *out)


def _grouped(x: np.ndarray, group: int) -> np.ndarray:
    return x.reshape(x.shape[0], group, x.shape[1] // group, *x.shape[2:])


def _at(x: np.ndarray, places: Sequence[int | slice]) -> np.ndarray:
    """x[..., *places]."""
    return np.asarray(x.__getitem__((Ellipsis, *places)))


def _taps(kernel: Ints) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, kernel))


def _shared(totals: Ints, mode: str) -> tuple[list[int], list[int]]:
    small = [max(0, t) // 2 for t in totals]
    large = [max(0, t) - s for t, s in zip(totals, small, strict=True)]
    return (small, large) if mode == "SAME_UPPER" else (large, small)


class _Convolution(OpRun):
    """Defaults of attributes, and padding from auto_pad."""

    def _window(self, x: np.ndarray, w: np.ndarray, attributes: dict[str, object]) -> tuple[list[int], list[int], list[int]]:
        ones = [1] * (x.ndim - 2)
        strides, dilations = list(attributes.get("strides") or ones), list(attributes.get("dilations") or ones)  # type: ignore[call-overload]
        pads = list(attributes.get("pads") or [0] * (2 * len(ones)))  # type: ignore[call-overload]
        mode = attributes.get("auto_pad")
        if mode == "VALID":
            pads = [0] * (2 * len(ones))
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            spans = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
            totals = [(-(-n // s) - 1) * s + span - n for n, s, span in zip(x.shape[2:], strides, spans, strict=True)]
            pads = [part for side in _shared(totals, str(mode)) for part in side]
        return strides, dilations, pads


class Conv(_Convolution):
    """Conv(X, W, B?)."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, group: int = 1, **attributes: object) -> tuple[np.ndarray]:
        y = convolve(x, w, *self._window(x, w, attributes), group or 1)
        return ((y if b is None else y + b.reshape(1, -1, *[1] * (x.ndim - 2))).astype(x.dtype),)


class ConvTranspose(_Convolution):
    """ConvTranspose(X, W, B?); a given output_shape decides the padding."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, group: int = 1, **attributes: object) -> tuple[np.ndarray]:
        rank, mode = x.ndim - 2, str(attributes.get("auto_pad"))
        strides, dilations, pads = self._window(x, w, {**attributes, "auto_pad": None})
        extra = list(attributes.get("output_padding") or [0] * rank)  # type: ignore[call-overload]
        sizes = zip(x.shape[2:], strides, dilations, w.shape[2:], extra, strict=True)
        full = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in sizes]
        out = [f - p - q for f, p, q in zip(full, pads[:rank], pads[rank:], strict=True)]
        begins = pads[:rank]
        if attributes.get("output_shape") or mode.startswith("SAME"):
            given = attributes.get("output_shape")
            out = list(given)[-rank:] if given else [n * s for n, s in zip(x.shape[2:], strides, strict=True)]  # type: ignore[call-overload]
            begins, _ = _shared([f - o for f, o in zip(full, out, strict=True)], mode)
        y = convolve_transposed(x, w, strides, dilations, begins, out, group or 1)
        return ((y if b is None else y + b.reshape(1, -1, *[1] * rank)).astype(x.dtype),)


def activate(y: np.ndarray, name: str, first: float, second: float) -> np.ndarray:
    """The fused activations of ONNX Runtime. Raises NotImplementedError for another name."""
    if name == "Clip":
        return np.asarray(np.clip(y, first, second))
    if name == "LeakyRelu":
        return np.where(y < 0, y * first, y)
    if name == "HardSigmoid":
        return np.asarray(np.clip(y * first + second, 0, 1))
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "": lambda a: a,
        "Relu": lambda a: np.maximum(a, 0),
        "Tanh": np.tanh,
        "Sigmoid": sigmoid,
    }
    if name not in functions:
        raise NotImplementedError(f"the fused activation {name!r}")
    return np.asarray(functions[name](y))


class FusedConv(MicrosoftOp, _Convolution):
    """FusedConv(X, W, B?, Z?): activation(convolution + B + Z)."""

    def _run(
        self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, z: np.ndarray | None = None, group: int = 1, activation: str = "",
        activation_params: Sequence[float] | None = None, **attributes: object,
    ) -> tuple[np.ndarray]:  # fmt: skip
        y = convolve(x, w, *self._window(x, w, attributes), group or 1)
        y = y if b is None else y + b.reshape(1, -1, *[1] * (x.ndim - 2))
        first, second = (*(activation_params or ()), 0.0, 0.0)[:2]
        return (activate(y if z is None else y + z, activation, first, second).astype(x.dtype),)


class FusedGemm(MicrosoftOp):
    """FusedGemm(A, B, C?): activation(alpha * A' B' + beta * C)."""

    def _run(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, transA: int = 0, transB: int = 0, alpha: float = 1.0,
        beta: float = 1.0, activation: str = "", activation_alpha: float = 0.01, activation_beta: float = 0.0, **_: object,
    ) -> tuple[np.ndarray]:  # fmt: skip
        y = alpha * ((a.T if transA else a) @ (b.T if transB else b))
        y = y if c is None else y + beta * c
        return (activate(y, activation, activation_alpha, activation_beta).astype(a.dtype),)
