"""What a kernel generator computes: convolution and matrix products, described without saying how."""

from __future__ import annotations

from dataclasses import dataclass

from anycann.te.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Convolution:
    """y[n, o, *s] = sum x[n, g*I + i, *(s*strides - pads + k*dilations)] * w[o, i, *k] over i, k; w is [O, I, *kernel] and constant.

    transposed: the gradient of that (ONNX ConvTranspose); w is then [I, O/group, *kernel]. zero_point (one element, of x) and
    weight_zero (of w, constant, one element or one an output channel) are subtracted first; padding stands for the zero point.
    """

    x: Tensor
    w: Tensor
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int
    out_size: tuple[int, ...]
    transposed: bool = False
    zero_point: Tensor | None = None
    weight_zero: Tensor | None = None


@dataclass(frozen=True, eq=False)
class MatMul:
    """c[*batch, m, n] = sum over k of a[*batch, m, k] * b[*batch, k, n], batch dimensions broadcast; transpose_* swap the last two axes."""

    a: Tensor
    b: Tensor
    transpose_a: bool = False
    transpose_b: bool = False


@dataclass(frozen=True, eq=False)
class Recurrent:
    """Result number `output` (Y, Y_h, Y_c) of an LSTM, GRU or RNN node.

    operands: X, W, R, B, sequence_lens, initial_h, initial_c, P as ONNX orders them, None where absent. W, R, B and P are constant.
    """

    kind: str  # "LSTM", "GRU" or "RNN"
    operands: tuple[Tensor | None, ...]
    hidden: int
    output: int
    direction: str = "forward"
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float | None = None
    layout: int = 0
    input_forget: bool = False
    linear_before_reset: bool = False
