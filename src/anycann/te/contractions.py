"""What a kernel generator computes: convolution, matrix products, recurrent layers, attention and pictures, without saying how."""

from __future__ import annotations

from collections.abc import Iterator

from anycann.support.records import dataclass
from anycann.te.strided import Strided
from anycann.te.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Convolution:
    """y[n, o, *s] = sum x[n, g*I + i, *(s*strides - pads + k*dilations)] * w[o, i, *k] over i, k; w is [O, I, *kernel].

    computed: w is not known while compiling. transposed: the gradient of that (ONNX ConvTranspose); w is then [I, O/group, *kernel].
    zero_point (one element, of x) and weight_zero (of w, constant, one element or one an output channel) are subtracted first; padding
    stands for the zero point.
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
    computed: bool = False


PLACE_CHANNELS = 16  # so many results of bytes at one place of a transposed convolution's windows fill whole vectors of every target
_WIDEST, _LEAST_INPUTS = 16, 8  # lanes of the widest vectors; input channels of a group


@dataclass(frozen=True, eq=False)
class WeightGradient:
    """dw[o, i, *k] = sum x[n, g*I + i, *(s*strides - pads + k*dilations)] * dy[n, o, *s] over n, s; g is the group of o."""

    x: Tensor
    dy: Tensor
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int

    @property
    def fills_vectors(self) -> bool:
        """Whether every vector of output channels belongs to one group, which has enough input channels for a register tile."""
        outputs, inputs = self.dy.shape[1] // self.group, self.x.shape[1] // self.group
        return self.group == 1 or (outputs % _WIDEST == 0 and inputs >= _LEAST_INPUTS)


@dataclass(frozen=True, eq=False)
class MatMul:
    """c[*batch, m, n] = sum over k of a[*batch, m, k] * b[*batch, k, n], batch dimensions broadcast; transpose_* swap the last two axes.

    scale: b [k, n] is constant integers, and b[k, n] stands for b[k, n] * scale[k // scale_rows, n], constant too.
    rounds_rows: with scales, a may be rounded to 8 bits, `scale_rows` elements of a row to multiples of one number.
    zero_a, zero_b: one element each, of the types of a and b, both of bytes; they are subtracted first.
    around: what most of an a of bytes lies around, if that is known: it changes how they are multiplied, and no result.
    """

    a: Tensor
    b: Tensor
    transpose_a: bool = False
    transpose_b: bool = False
    scale: Tensor | None = None
    scale_rows: int = 0
    rounds_rows: bool = False
    zero_a: Tensor | None = None
    zero_b: Tensor | None = None
    around: int | None = None


@dataclass(frozen=True, eq=False)
class Recurrent:
    """Result number `output` (Y, Y_h, Y_c) of an LSTM, GRU or RNN node.

    operands: X, W, R, B, sequence_lens, initial_h, initial_c, P as ONNX orders them, None where absent. W, R, B and P are constant.
    rounds_states: products with R may take hidden states of 16 bits, of the range that they have.
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
    rounds_states: bool = False


@dataclass(frozen=True, eq=False)
class Viewed:
    """A tensor in memory, read through a view of its buffer."""

    tensor: Tensor
    view: Strided


@dataclass(frozen=True, eq=False)
class Attention:
    """y[*batch, m, d] = sum over t of w[*batch, m, t] * value[*batch, t, d], w = softmax over t of the scores.

    scores[*batch, m, t] = scale * sum over d of query[*batch, m, d] * key[*batch, t, d]; with a softcap c they become c * tanh(scores / c).
    Each of `masks` ([*batch, m, t]) is then added, in order; where `replaces` says so every element but zero takes the score's place.
    reach: only the keys t <= m + reach are seen. order: axis n of the result is axis order[n] of y; the last stays the last.
    empty_is_zero: a row whose weights are not numbers (it sees no key) gives zero.
    """

    query: Viewed
    key: Viewed
    value: Viewed
    masks: tuple[Viewed, ...]
    replaces: tuple[bool, ...]
    scale: float
    order: tuple[int, ...]
    softcap: float = 0.0
    reach: int | None = None
    empty_is_zero: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """y[n, c, h, w] of the pictures in `source` (bytes), each made as its row of `table` says (te/picture_table.py)."""

    source: Tensor
    table: Tensor


def operands(operator: object) -> Iterator[Tensor]:
    """The tensors that a contraction's operator reads."""
    for field in vars(operator).values():
        for item in field if isinstance(field, tuple) else (field,):
            if isinstance(item, Viewed):
                yield item.tensor
            elif isinstance(item, Tensor):
                yield item
