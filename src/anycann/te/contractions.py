"""What a kernel generator computes: convolution and matrix products, described without saying how."""

from __future__ import annotations

from dataclasses import dataclass

from anycann.te.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Convolution:
    """y[n, o, *s] = sum x[n, g*I + i, *(s*strides - pads + k*dilations)] * w[o, i, *k] over i, k; w is [O, I, *kernel] and constant.

    transposed: the gradient of that (ONNX ConvTranspose); w is then [I, O/group, *kernel].
    """

    x: Tensor
    w: Tensor
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int
    out_size: tuple[int, ...]
    transposed: bool = False


@dataclass(frozen=True, eq=False)
class MatMul:
    """c[*batch, m, n] = sum over k of a[*batch, m, k] * b[*batch, k, n], batch dimensions broadcast; transpose_* swap the last two axes."""

    a: Tensor
    b: Tensor
    transpose_a: bool = False
    transpose_b: bool = False


@dataclass(frozen=True, eq=False)
class Recurrent:
    """One direction or both of an LSTM, GRU or RNN node; `attributes` as in ONNX. Its result is output number `output` of the node."""

    kind: str
    operands: tuple[Tensor | None, ...]
    attributes: tuple[tuple[str, object], ...]
