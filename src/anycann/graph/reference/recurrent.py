"""LSTM, GRU and RNN with every attribute of the specification, and DynamicQuantizeLSTM of com.microsoft.

The classes of `onnx.reference` leave out the cell state, sequence lengths and most activation functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from anycann.graph.reference.base import MicrosoftOp
from anycann.graph.reference.quantization import dequantize, fake_quantize
from anycann.graph.reference.recurrent_cells import Activation, State, Step, activation_functions, unroll

Project = Callable[[np.ndarray], np.ndarray]  # [batch, hidden] -> [batch, gates * hidden]
MakeStep = Callable[[int, Project, list[Activation]], Step]  # number of the direction, its recurrent product and functions


def lstm_step(
    project: Project, bias: np.ndarray, peepholes: np.ndarray, functions: list[Activation], clip: float | None, coupled: bool
) -> Step:
    """One step of an LSTM in gate order i, o, f, c. The state is the hidden and the cell state; `coupled` makes f = 1 - i."""
    f, g, h = functions
    limit = clip or np.inf

    def step(gates_of_input: np.ndarray, state: State) -> State:
        hidden, cell = state
        i, o, forget, c = np.split(gates_of_input + project(hidden) + bias, 4, axis=-1)
        i = f(np.clip(i + peepholes[0] * cell, -limit, limit))
        forget = 1 - i if coupled else f(np.clip(forget + peepholes[2] * cell, -limit, limit))
        cell = forget * cell + i * g(np.clip(c, -limit, limit))
        o = f(np.clip(o + peepholes[1] * cell, -limit, limit))
        return o * h(cell), cell

    return step


def gru_step(project: Project, bias: np.ndarray, functions: list[Activation], clip: float | None, r_h: np.ndarray, linear: bool) -> Step:
    """One step of a GRU in gate order z, r, h. `bias` [2, 3 hidden]; `r_h` [hidden, hidden]; `linear` is linear_before_reset."""
    f, g = functions
    limit = clip or np.inf
    input_bias, hidden_bias = bias

    def step(gates_of_input: np.ndarray, state: State) -> State:
        hidden = state[0]
        xz, xr, xh = np.split(gates_of_input + input_bias, 3, axis=-1)
        hz, hr, hh = np.split(project(hidden) + hidden_bias, 3, axis=-1)
        z, r = (f(np.clip(gate, -limit, limit)) for gate in (xz + hz, xr + hr))
        reset = r * hh if linear else (r * hidden) @ r_h + np.split(hidden_bias, 3)[2]
        return ((1 - z) * g(np.clip(xh + reset, -limit, limit)) + z * hidden,)

    return step


def run_directions(
    x: np.ndarray,
    weights: list[np.ndarray],
    steps: list[Step],
    lengths: np.ndarray | None,
    states: list[State],
    direction: str,
    layout: int,
) -> tuple[np.ndarray, ...]:
    """Y and the last states of all directions; x [steps, batch, input] times `weights` [input, gates] is what `steps` read."""
    lengths = np.full(x.shape[1], len(x)) if lengths is None else lengths
    outputs, last = [], []
    for index, (matrix, step, state) in enumerate(zip(weights, steps, states, strict=True)):
        y, state = unroll(step, x @ matrix, lengths, direction == "reverse" or index == 1, state)
        outputs.append(y)
        last.append(state)
    y, finals = np.stack(outputs, axis=1), [np.stack(parts) for parts in zip(*last, strict=True)]
    if layout:
        return np.transpose(y, (2, 0, 1, 3)), *(np.swapaxes(final, 0, 1) for final in finals)
    return y, *finals


class _Recurrent(OpRun):
    """A standard recurrent operator: reads operands, builds a step for each direction, runs them."""

    gates = 1
    defaults: tuple[str, ...] = ("tanh",)
    states = 1

    def _run(
        self, x: np.ndarray, w: np.ndarray, r: np.ndarray, bias: Any = None, lengths: Any = None, *initial: Any, **attributes: Any
    ) -> tuple[np.ndarray, ...]:
        layout = attributes.get("layout") or 0
        x = np.swapaxes(x, 0, 1) if layout else x
        count, hidden, batch = len(r), r.shape[-1], x.shape[1]
        given = [None if value is None else np.swapaxes(value, 0, 1) if layout else value for value in initial[: self.states]]
        given += [None] * (self.states - len(given))
        first = [np.zeros((count, batch, hidden), x.dtype) if value is None else value for value in given]
        bias = np.zeros((count, 2 * self.gates * hidden), x.dtype) if bias is None else bias
        functions = activation_functions(attributes, self.defaults, count)
        steps = [self._step(n, r[n], bias[n].reshape(2, -1), functions[n], initial, attributes) for n in range(count)]
        states = [tuple(value[n] for value in first) for n in range(count)]
        return run_directions(x, [matrix.T for matrix in w], steps, lengths, states, attributes.get("direction") or "forward", layout)

    def _step(self, n: int, r: np.ndarray, bias: np.ndarray, functions: list[Activation], operands: Any, attributes: Any) -> Step:
        """The step of direction `n`: recurrent weights `r` [gates * hidden, hidden], `bias` [2, gates * hidden]."""
        raise NotImplementedError


class RNN(_Recurrent):
    """RNN(X, W, R, B, sequence_lens, initial_h): H = f(X W + H R + b)."""

    def _step(self, n: int, r: np.ndarray, bias: np.ndarray, functions: list[Activation], operands: Any, attributes: Any) -> Step:
        limit = attributes.get("clip") or np.inf
        return lambda x, state: (functions[0](np.clip(x + state[0] @ r.T + bias.sum(axis=0), -limit, limit)),)


class GRU(_Recurrent):
    """GRU(X, W, R, B, sequence_lens, initial_h)."""

    gates = 3
    defaults = ("sigmoid", "tanh")

    def _step(self, n: int, r: np.ndarray, bias: np.ndarray, functions: list[Activation], operands: Any, attributes: Any) -> Step:
        r_h = np.split(r, 3)[2].T
        linear = bool(attributes.get("linear_before_reset"))
        return gru_step(lambda hidden: hidden @ r.T, bias, functions, attributes.get("clip"), r_h, linear)


class LSTM(_Recurrent):
    """LSTM(X, W, R, B, sequence_lens, initial_h, initial_c, P)."""

    gates = 4
    defaults = ("sigmoid", "tanh", "tanh")
    states = 2

    def _step(self, n: int, r: np.ndarray, bias: np.ndarray, functions: list[Activation], operands: Any, attributes: Any) -> Step:
        peepholes = _peepholes(operands[2] if len(operands) > 2 else None, n, r.shape[-1], r.dtype)
        coupled = bool(attributes.get("input_forget"))
        return lstm_step(lambda hidden: hidden @ r.T, bias.sum(axis=0), peepholes, functions, attributes.get("clip"), coupled)


class DynamicQuantizeLSTM(MicrosoftOp):
    """DynamicQuantizeLSTM(X, W, R, B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point).

    W [directions, input, 4 hidden] and R [directions, hidden, 4 hidden] are 8-bit integers; X, and each hidden state, are quantised by
    their own range. Gives Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden].
    """

    def _run(self, x: np.ndarray, *inputs: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
        w, r, bias, lengths, initial_h, initial_c, peepholes, w_scale, w_zero, r_scale, r_zero = inputs
        weights, recurrent = _dequantized(w, w_scale, w_zero), _dequantized(r, r_scale, r_zero)
        count, hidden, batch = len(recurrent), recurrent.shape[1], x.shape[1]
        bias = np.zeros((count, 8 * hidden), x.dtype) if bias is None else bias
        zeros = np.zeros((count, batch, hidden), x.dtype)
        first = [zeros if value is None else value for value in (initial_h, initial_c)]
        functions = activation_functions(attributes, LSTM.defaults, count)
        steps = [
            lstm_step(
                _quantized_product(recurrent[n]),
                bias[n].reshape(2, -1).sum(axis=0),
                _peepholes(peepholes, n, hidden, x.dtype),
                functions[n],
                attributes.get("clip"),
                bool(attributes.get("input_forget")),
            )
            for n in range(count)
        ]
        states: list[State] = [(first[0][n], first[1][n]) for n in range(count)]
        return run_directions(fake_quantize(x), list(weights), steps, lengths, states, attributes.get("direction") or "forward", 0)


def _quantized_product(matrix: np.ndarray) -> Project:
    return lambda hidden: np.asarray(fake_quantize(hidden) @ matrix)


def _peepholes(values: np.ndarray | None, direction: int, hidden: int, dtype: np.dtype) -> np.ndarray:
    """[3, hidden] in order i, o, f; zeros when the operator has none."""
    return np.zeros((3, hidden), dtype) if values is None else values[direction].reshape(3, hidden)


def _dequantized(weights: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Weights [directions, rows, columns]; one scale a direction or one a column."""
    if scale.ndim <= 1:
        scale, zero_point = scale.reshape(-1, 1, 1), zero_point.reshape(-1, 1, 1)
        return dequantize(weights, scale, zero_point)
    return dequantize(weights, scale[:, None, :], zero_point.reshape(scale.shape)[:, None, :])
