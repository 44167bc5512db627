"""DynamicQuantizeLSTM: an LSTM whose weights are 8 bits and whose inputs are quantised step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anycann.graph.reference.base import MicrosoftOp, sigmoid
from anycann.graph.reference.quantization import dequantize, fake_quantize
from anycann.support.errors import UnsupportedError

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


@dataclass(frozen=True)
class Direction:
    """One direction of an LSTM: weights [input, 4 hidden] and [hidden, 4 hidden] in gate order i, o, f, c; peepholes [3, hidden]."""

    weights: np.ndarray
    recurrent: np.ndarray
    bias: np.ndarray
    peepholes: np.ndarray
    hidden: np.ndarray  # [batch, hidden]
    cell: np.ndarray
    activations: tuple[str, str, str]
    clip: float | None


class DynamicQuantizeLSTM(MicrosoftOp):
    """DynamicQuantizeLSTM(X, W, R, B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point).

    X is float [steps, batch, input]; W [directions, input, 4 hidden] and R [directions, hidden, 4 hidden] are 8-bit integers.
    Gives Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden].
    """

    def _run(self, x: np.ndarray, *inputs: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
        w, r, bias, lengths, initial_h, initial_c, peepholes, w_scale, w_zero, r_scale, r_zero = inputs
        if attributes.get("input_forget"):
            raise UnsupportedError("DynamicQuantizeLSTM with input_forget = 1 is not implemented; 0 is")
        weights, recurrent = _dequantized(w, w_scale, w_zero), _dequantized(r, r_scale, r_zero)
        count, hidden, batch = len(recurrent), recurrent.shape[1], x.shape[1]
        bias = np.zeros((count, 8 * hidden), x.dtype) if bias is None else bias
        peepholes = np.zeros((count, 3 * hidden), x.dtype) if peepholes is None else peepholes
        state = np.zeros((count, batch, hidden), x.dtype)
        initial_h, initial_c = (state if value is None else value for value in (initial_h, initial_c))
        lengths = np.full(batch, len(x)) if lengths is None else lengths
        names = _activation_names(attributes.get("activations"), count)
        results = []
        for index in range(count):
            direction = Direction(
                weights[index],
                recurrent[index],
                bias[index].reshape(2, -1).sum(axis=0),
                peepholes[index].reshape(3, hidden),
                initial_h[index],
                initial_c[index],
                names[index],
                attributes.get("clip"),
            )
            reverse = index == 1 or attributes.get("direction") == "reverse"
            results.append(_run_direction(direction, x, lengths, reverse))
        y, y_h, y_c = (np.stack(parts) for parts in zip(*results, strict=True))
        return np.swapaxes(y, 0, 1), y_h, y_c


def _dequantized(weights: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Weights [directions, rows, columns]; one scale a direction or one a column."""
    if scale.ndim <= 1:
        scale, zero_point = scale.reshape(-1, 1, 1), zero_point.reshape(-1, 1, 1)
        return dequantize(weights, scale, zero_point)
    return dequantize(weights, scale[:, None, :], zero_point.reshape(scale.shape)[:, None, :])


def _activation_names(names: object, directions: int) -> list[tuple[str, str, str]]:
    given = [str(name).lower() for name in names] if isinstance(names, Sequence) and names else ["sigmoid", "tanh", "tanh"] * directions
    unknown = sorted(set(given) - set(ACTIVATIONS))
    if unknown or len(given) != 3 * directions:
        raise UnsupportedError(
            f"DynamicQuantizeLSTM: activations {given} are not implemented; three a direction of {sorted(ACTIVATIONS)} are"
        )
    return [(given[i], given[i + 1], given[i + 2]) for i in range(0, len(given), 3)]


def _run_direction(direction: Direction, x: np.ndarray, lengths: np.ndarray, reverse: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Y [steps, batch, hidden] and the last hidden and cell state. Steps beyond a sequence's length keep its state and give zeros."""
    gates_of_input = fake_quantize(x) @ direction.weights
    y = np.zeros((len(x), *direction.hidden.shape), x.dtype)
    for step in range(int(lengths.max(initial=0))):
        source = np.where(step < lengths, lengths - 1 - step if reverse else step, 0)
        gates = gates_of_input[source, np.arange(x.shape[1])]
        hidden, cell = _step(direction, gates)
        active = (step < lengths)[:, None]
        direction = replace(direction, hidden=np.where(active, hidden, direction.hidden), cell=np.where(active, cell, direction.cell))
        rows = np.nonzero(step < lengths)[0]
        y[source[rows], rows] = direction.hidden[rows]
    return y, direction.hidden, direction.cell


def _step(direction: Direction, gates_of_input: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next hidden and cell state, [batch, hidden] each."""
    f, g, h = (ACTIVATIONS[name] for name in direction.activations)
    limit = direction.clip or np.inf
    gates = gates_of_input + fake_quantize(direction.hidden) @ direction.recurrent + direction.bias
    i, o, forget, c = np.split(gates, 4, axis=-1)
    peep_i, peep_o, peep_f = direction.peepholes
    i = f(np.clip(i + peep_i * direction.cell, -limit, limit))
    forget = f(np.clip(forget + peep_f * direction.cell, -limit, limit))
    cell = forget * direction.cell + i * g(np.clip(c, -limit, limit))
    o = f(np.clip(o + peep_o * cell, -limit, limit))
    return (o * h(cell)).astype(gates.dtype), cell.astype(gates.dtype)
