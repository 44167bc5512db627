"""The arithmetic of one vector of hidden cells: activations, and the equations of LSTM, GRU and RNN (ONNX operator specification)."""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen import vector_math
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent_shape import Activation, RecurrentShape
from anycann.codegen.values import Value
from anycann.codegen.vector_math_cells import cell_sigmoid, cell_tanh
from anycann.support.records import dataclass


@dataclass(frozen=True)
class CellInputs:
    """What a cell reads besides its gates: its states, and the vectors of `RecurrentWeights.vectors`; a GRU's projected candidate."""

    hidden: Value
    memory: Value | None
    vectors: tuple[Value, ...]
    projected: Value | None = None


def activate(e: Emitter, activation: Activation, x: Value) -> Value:
    """The activation function of `x`; a NaN stays."""
    return _ACTIVATIONS[activation.name](e, x, activation.alpha, activation.beta)


def lstm(
    e: Emitter, shape: RecurrentShape, functions: tuple[Activation, ...], gates: list[Value], inputs: CellInputs
) -> tuple[Value, Value]:
    """(new hidden, new memory) of gates i, o, f, c."""
    f, g, h = functions
    i, o, forget, candidate = gates
    assert inputs.memory is not None
    if inputs.vectors:
        i = _add(e, i, _mul(e, inputs.vectors[0], inputs.memory))
        forget = _add(e, forget, _mul(e, inputs.vectors[2], inputs.memory))
    i = activate(e, f, _clip(e, shape, i))
    kept = _sub(e, e.const(1.0, i.type), i) if shape.input_forget else activate(e, f, _clip(e, shape, forget))
    candidate = activate(e, g, _clip(e, shape, candidate))
    memory = _add(e, _mul(e, kept, inputs.memory), _mul(e, i, candidate))
    if inputs.vectors:
        o = _add(e, o, _mul(e, inputs.vectors[1], memory))
    o = activate(e, f, _clip(e, shape, o))
    return _mul(e, o, activate(e, h, memory)), memory


def gru_gates(e: Emitter, shape: RecurrentShape, functions: tuple[Activation, ...], gates: list[Value]) -> tuple[Value, Value]:
    """(update, reset) of the sums z, r."""
    update, reset = (activate(e, functions[0], _clip(e, shape, gate)) for gate in gates[:2])
    return update, reset


def gru_output(
    e: Emitter, shape: RecurrentShape, functions: tuple[Activation, ...], candidate: Value, update: Value, inputs: CellInputs
) -> Value:
    """(1 - z) g(candidate) + z hidden."""
    new = activate(e, functions[1], _clip(e, shape, candidate))
    return _add(e, new, _mul(e, update, _sub(e, inputs.hidden, new)))


def gru_after(e: Emitter, shape: RecurrentShape, functions: tuple[Activation, ...], gates: list[Value], inputs: CellInputs) -> Value:
    """New hidden of a GRU with linear_before_reset: the reset gate scales the product, not its input."""
    update, reset = gru_gates(e, shape, functions, gates)
    assert inputs.projected is not None
    candidate = _add(e, inputs.projected, _mul(e, reset, _add(e, gates[2], inputs.vectors[0])))
    return gru_output(e, shape, functions, candidate, update, inputs)


def rnn(e: Emitter, shape: RecurrentShape, functions: tuple[Activation, ...], gates: list[Value]) -> Value:
    """New hidden of a plain recurrent cell."""
    return activate(e, functions[0], _clip(e, shape, gates[0]))


def _clip(e: Emitter, shape: RecurrentShape, x: Value) -> Value:
    if shape.clip is None:
        return x
    high, low = e.const(shape.clip, x.type), e.const(-shape.clip, x.type)
    return vector_math.fmax(e, vector_math.fmin(e, x, high), low)


def _add(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("fadd", a, b)


def _sub(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("fsub", a, b)


def _mul(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("fmul", a, b)


def _affine(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return _add(e, _mul(e, x, e.const(alpha, x.type)), e.const(beta, x.type))


def _elu(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    below = _mul(e, vector_math.expm1(e, x), e.const(alpha, x.type))
    return e.select(e.compare("olt", x, e.const(0.0, x.type)), below, x)


def _hard_sigmoid(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    line = vector_math.fmax(e, _affine(e, x, alpha, beta), e.const(0.0, x.type))
    return vector_math.fmin(e, line, e.const(1.0, x.type))


def _leaky_relu(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return e.select(e.compare("olt", x, e.const(0.0, x.type)), _mul(e, x, e.const(alpha, x.type)), x)


def _relu(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return vector_math.fmax(e, x, e.const(0.0, x.type))


def _scaled_tanh(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return _mul(e, cell_tanh(e, _mul(e, x, e.const(beta, x.type))), e.const(alpha, x.type))


def _softsign(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return e.binary("fdiv", x, _add(e, vector_math.absolute(e, x), e.const(1.0, x.type)))


def _thresholded_relu(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    return e.select(e.compare("olt", x, e.const(alpha, x.type)), e.const(0.0, x.type), x)


def _plain(function: Callable[[Emitter, Value], Value]) -> Callable[[Emitter, Value, float, float], Value]:
    return lambda e, x, alpha, beta: function(e, x)


_ACTIVATIONS: dict[str, Callable[[Emitter, Value, float, float], Value]] = {
    "affine": _affine,
    "elu": _elu,
    "hardsigmoid": _hard_sigmoid,
    "leakyrelu": _leaky_relu,
    "relu": _relu,
    "scaledtanh": _scaled_tanh,
    "sigmoid": _plain(cell_sigmoid),
    "softplus": _plain(vector_math.softplus),
    "softsign": _softsign,
    "tanh": _plain(cell_tanh),
    "thresholdedrelu": _thresholded_relu,
}
