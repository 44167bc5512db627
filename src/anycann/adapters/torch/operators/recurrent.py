"""Recurrent layers of one level, with what each step computed."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_Eight = tuple[torch.Tensor, ...]


def _single(operator: str, num_layers: int, dropout: float, bidirectional: bool, batch_first: bool) -> None:
    if num_layers != 1 or dropout or bidirectional or batch_first:
        refuse(
            operator, "several layers, dropout, bidirectional or batch_first", "the interface takes one layer of one direction, time first"
        )


@composed(
    "npu_lstm(Tensor input, Tensor weight, Tensor bias, Tensor seq_mask, Tensor h, Tensor c, bool has_biases, int num_layers, "
    "float dropout, bool train, bool bidirectional, bool batch_first, bool flag_seq, bool direction)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    missing="packed sequences (flag_seq)",
)
def lstm(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    seq_mask: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    flag_seq: bool,
    direction: bool,
) -> _Eight:
    """(y, h, c, i, j, f, o, tanh c), each (T, B, H): weight (I + H, 4 H) and bias (4 H) of gates i, f, j, o; direction: from the end."""
    operator = "npu_lstm"
    _single(operator, num_layers, dropout, bidirectional, batch_first)
    if flag_seq:
        refuse(operator, "flag_seq=True", "the interface does not take packed sequences yet")
    size = weight.shape[1] // 4
    fits = weight.shape[0] == input.shape[2] + size
    require(fits, operator, f"input and weight of {sizes(input, weight)}", "(T, B, I) and (I + H, 4 H)")
    x, w, offset = wide(input), wide(weight), wide(bias) if has_biases else 0.0
    state, cell = wide(h).reshape(-1, size), wide(c).reshape(-1, size)
    steps: list[tuple[torch.Tensor, ...]] = []
    for t in range(x.shape[0] - 1, -1, -1) if direction else range(x.shape[0]):
        i, f, j, o = (torch.cat((x[t], state), 1) @ w + offset).chunk(4, 1)
        i, f, j, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(j), torch.sigmoid(o)
        cell = f * cell + i * j
        squashed = torch.tanh(cell)
        state = o * squashed
        steps.append((state, state, cell, i, j, f, o, squashed))
    return tuple(_stacked(parts, direction).to(input.dtype) for parts in zip(*steps, strict=True))


@composed(
    "npu_lstm_cell(Tensor input, Tensor w_ih, Tensor w_hh, Tensor h, Tensor c, Tensor? b_ih=None, Tensor? b_hh=None)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def lstm_cell(
    input: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> _Eight:
    """(y, h, c, i, j, f, o, tanh c), each (B, H): weights (I, 4 H) and (H, 4 H), gates i, f, j, o."""
    gates = wide(input) @ wide(w_ih) + wide(h) @ wide(w_hh)
    for bias in (b_ih, b_hh):
        gates = gates if bias is None else gates + wide(bias)
    i, f, j, o = gates.chunk(4, 1)
    i, f, j, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(j), torch.sigmoid(o)
    cell = f * wide(c) + i * j
    squashed = torch.tanh(cell)
    state = o * squashed
    return tuple(x.to(input.dtype) for x in (state, state.clone(), cell, i, j, f, o, squashed))


@composed(
    "npu_gru(Tensor input, Tensor hx, Tensor weight_input, Tensor weight_hidden, Tensor bias_input, Tensor bias_hidden, "
    "Tensor seq_length, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    missing="seq_length other than whole sequences",
)
def gru(
    input: torch.Tensor,
    hx: torch.Tensor,
    weight_input: torch.Tensor,
    weight_hidden: torch.Tensor,
    bias_input: torch.Tensor,
    bias_hidden: torch.Tensor,
    seq_length: torch.Tensor,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """(y, h, update, reset, new, hidden part of new), each (T, B, H): weights (I, 3 H), (H, 3 H) of reset, update, new.

    The reset gate takes effect behind the product, as in torch.nn.GRU.
    """
    operator = "npu_gru"
    _single(operator, num_layers, dropout, bidirectional, batch_first)
    size = weight_hidden.shape[0]
    fits = weight_input.shape == (input.shape[2], 3 * size)
    require(fits, operator, f"input and weights of {sizes(input, weight_input, weight_hidden)}", "(T, B, I), (I, 3 H), (H, 3 H)")
    x, w, u = wide(input), wide(weight_input), wide(weight_hidden)
    b, d = (wide(bias_input), wide(bias_hidden)) if has_biases else (0.0, 0.0)
    state = wide(hx).reshape(-1, size)
    steps: list[tuple[torch.Tensor, ...]] = []
    for t in range(x.shape[0]):
        (r, z, n), (rh, zh, nh) = (x[t] @ w + b).chunk(3, 1), (state @ u + d).chunk(3, 1)
        reset, update = torch.sigmoid(r + rh), torch.sigmoid(z + zh)
        new = torch.tanh(n + reset * nh)
        state = (1 - update) * new + update * state
        steps.append((state, state, update, reset, new, nh))
    return tuple(torch.stack(parts).to(input.dtype) for parts in zip(*steps, strict=True))


def _stacked(parts: tuple[torch.Tensor, ...], from_the_end: bool) -> torch.Tensor:
    return torch.stack(parts[::-1] if from_the_end else parts)
