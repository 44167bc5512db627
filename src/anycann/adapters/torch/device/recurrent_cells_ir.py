"""The equations of recurrent cells (as `torch.nn` states them) and of their gradients, on one vector of cells of a step.

`Word` is what the code of `recurrent_ir.py` is given; a `Layer` says where the step lies in it, a `Point` where the vector does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math import fmax, sigmoid, tanh
from anycann.support.records import dataclass


class Word(IntEnum):
    """What the code is given, in 64 bits each: addresses of float32 without gaps (STEPS, ROWS, ...) if not said otherwise, and sizes.

    Sums: those of the gates, which become the gates. STRIDE, RUN: floats from step to step and from row to row of Y and GRADIENT.
    CELLS_STRIDE and PARTS_STRIDE are 0 where only the last step is kept. On the way back HIDDEN and CELL are gradients by the states, which
    become those by the first states. Words from TRANSPOSED on are of the way there, those from GRADIENT on of that back.
    """

    STEPS = 0
    ROWS = 1  # sequences
    WIDTH = 2  # of the state
    REVERSE = 3  # 1: from the last step to the first
    STRIDE = 4
    RUN = 5
    CELLS_STRIDE = 6
    PARTS_STRIDE = 7
    MULTIPLY = 8  # sgemm of BLAS
    WEIGHT = 9  # by the state: (gates * width, width)
    SUMS = 10  # (steps, rows, gates * width)
    FIRST_HIDDEN = 11  # (rows, width)
    FIRST_CELL = 12
    Y = 13  # (steps, rows, width)
    CELLS = 14  # (steps, rows, width): the cell states of an LSTM
    PARTS = 15  # (steps, rows, width): what the reset gate of a GRU scales
    HIDDEN = 16  # (rows, width): the last state
    CELL = 17
    TRANSPOSED = 18  # 1: WEIGHT is (width, gates * width)
    BIAS = 19  # of the product by the state: (gates * width)
    PRODUCTS = 20  # (rows, 3 * width): room for those of a GRU
    GRADIENT = 21  # by Y
    BY_SUMS = 22  # (steps, rows, gates * width)
    BY_PRODUCTS = 23  # the same by the products by the state, where that is not the same: of a GRU


@dataclass(frozen=True)
class Cell:
    """One kind of recurrent cell. `forward` and `backward` compute one vector of it."""

    name: str
    gates: int
    forward: Callable[[Point], None]
    backward: Callable[[Point], None]


@dataclass(frozen=True)
class Layer:
    """The words of a layer by their names, and where the step that is computed lies."""

    e: Emitter
    words: dict[Word, Value]
    cell: Cell
    time: Value
    first: Value  # whether there is no step before
    before: Value  # the step before, if there is one

    def word(self, word: Word) -> Value:
        return self.words[word]

    def floats(self, word: Word, offset: Value) -> Value:
        return self.e.gep(self.words[word], offset, "float")

    def of_step(self, word: Word, width: Value, time: Value | None = None) -> Value:
        """Where the rows of a step begin."""
        each = self.e.mul(self.word(Word.ROWS), width)
        return self.floats(word, self.e.mul(time or self.time, each))

    @property
    def gates_width(self) -> Value:
        return self.e.mul(self.word(Word.WIDTH), self.cell.gates)

    def state_before(self, word: Word, first: Word, stride: Word, run: Value) -> tuple[Value, Value]:
        """Where the state before this step is, and its floats from row to row."""
        e = self.e
        later = self.floats(word, e.mul(self.before, self.word(stride)))
        return e.select(self.first, self.word(first), later), e.select(self.first, self.word(Word.WIDTH), run)


@dataclass(frozen=True)
class Point:
    """A vector of cells: `at` its number in its row, `row`, and the places of the layer that it reads and writes."""

    layer: Layer
    places: dict[str, tuple[Value, Value]]  # where rows begin, and floats from row to row
    row: Value
    at: Value
    type: str

    def _place(self, name: str, gate: int) -> Value:
        e, (start, run) = self.layer.e, self.places[name]
        offset = e.add(e.add(e.mul(self.row, run), e.mul(self.layer.word(Word.WIDTH), gate)), self.at)
        return e.gep(start, offset, "float")

    def load(self, name: str, gate: int = 0) -> Value:
        return self.layer.e.load(self._place(name, gate), self.type, 4)

    def store(self, value: Value, name: str, gate: int = 0) -> None:
        self.layer.e.store(value, self._place(name, gate), 4)

    def add(self, a: Value, b: Value) -> Value:
        return self.layer.e.binary("fadd", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.layer.e.binary("fsub", a, b)

    def mul(self, *factors: Value) -> Value:
        product, *rest = factors
        for factor in rest:
            product = self.layer.e.binary("fmul", product, factor)
        return product

    def one_minus(self, x: Value) -> Value:
        return self.sub(self.layer.e.const(1.0, x.type), x)

    def sigmoid(self, x: Value) -> Value:
        return sigmoid(self.layer.e, x)

    def tanh(self, x: Value) -> Value:
        return tanh(self.layer.e, x)

    def by_sigmoid(self, gradient: Value, y: Value) -> Value:
        """The gradient by x of y = sigmoid(x)."""
        return self.mul(gradient, y, self.one_minus(y))

    def by_tanh(self, gradient: Value, y: Value) -> Value:
        return self.mul(gradient, self.one_minus(self.mul(y, y)))

    def sum(self, gate: int) -> Value:
        """Of both products and both biases, of one gate."""
        return self.add(self.load("sums", gate), self.load("bias", gate))


def _lstm(p: Point) -> None:
    """c = f c + i g, h = o tanh(c) of gates i, f, g, o."""
    i, f, o = (p.sigmoid(p.sum(gate)) for gate in (0, 1, 3))
    g = p.tanh(p.sum(2))
    cell = p.add(p.mul(f, p.load("cell before")), p.mul(i, g))
    for gate, value in enumerate((i, f, g, o)):
        p.store(value, "sums", gate)
    hidden = p.mul(o, p.tanh(cell))
    for value, name in ((cell, "cells"), (cell, "cell"), (hidden, "y"), (hidden, "hidden")):
        p.store(value, name)


def _lstm_back(p: Point) -> None:
    i, f, g, o = (p.load("sums", gate) for gate in range(4))
    gradient, squashed = p.add(p.load("gradient"), p.load("hidden")), p.tanh(p.load("cells"))
    by_cell = p.add(p.load("cell"), p.by_tanh(p.mul(gradient, o), squashed))
    p.store(p.by_sigmoid(p.mul(by_cell, g), i), "by sums", 0)
    p.store(p.by_sigmoid(p.mul(by_cell, p.load("cell before")), f), "by sums", 1)
    p.store(p.by_tanh(p.mul(by_cell, i), g), "by sums", 2)
    p.store(p.by_sigmoid(p.mul(gradient, squashed), o), "by sums", 3)
    p.store(p.mul(by_cell, f), "cell")


def _gru(p: Point) -> None:
    """h = n + z (h - n) with n = tanh(x + r part) of gates r, z, n; `part` is the product by the state and its bias."""
    projected = [p.add(p.load("products", gate), p.load("bias", gate)) for gate in range(3)]
    r, z = (p.sigmoid(p.add(p.load("sums", gate), projected[gate])) for gate in range(2))
    n = p.tanh(p.add(p.load("sums", 2), p.mul(r, projected[2])))
    for gate, value in enumerate((r, z, n)):
        p.store(value, "sums", gate)
    p.store(projected[2], "parts")
    hidden = p.add(n, p.mul(z, p.sub(p.load("hidden before"), n)))
    p.store(hidden, "y")
    p.store(hidden, "hidden")


def _gru_back(p: Point) -> None:
    r, z, n = (p.load("sums", gate) for gate in range(3))
    gradient = p.add(p.load("gradient"), p.load("hidden"))
    by_n = p.by_tanh(p.mul(gradient, p.one_minus(z)), n)
    by_z = p.by_sigmoid(p.mul(gradient, p.sub(p.load("hidden before"), n)), z)
    by_r = p.by_sigmoid(p.mul(by_n, p.load("parts")), r)
    for name, values in (("by sums", (by_r, by_z, by_n)), ("by products", (by_r, by_z, p.mul(by_n, r)))):
        for gate, value in enumerate(values):
            p.store(value, name, gate)
    p.store(p.mul(gradient, z), "hidden")


def _rnn(activate: Callable[[Point, Value], Value]) -> Callable[[Point], None]:
    def forward(p: Point) -> None:
        hidden = activate(p, p.sum(0))
        p.store(hidden, "y")
        p.store(hidden, "hidden")

    return forward


def _rnn_back(differentiate: Callable[[Point, Value, Value], Value]) -> Callable[[Point], None]:
    def backward(p: Point) -> None:
        p.store(differentiate(p, p.add(p.load("gradient"), p.load("hidden")), p.load("y")), "by sums")

    return backward


def _relu(p: Point, x: Value) -> Value:
    return fmax(p.layer.e, x, p.layer.e.const(0.0, x.type))


def _by_relu(p: Point, gradient: Value, y: Value) -> Value:
    zero = p.layer.e.const(0.0, y.type)
    return p.layer.e.select(p.layer.e.compare("ugt", y, zero), gradient, zero)


CELLS = {
    cell.name: cell
    for cell in (
        Cell("lstm", 4, _lstm, _lstm_back),
        Cell("gru", 3, _gru, _gru_back),
        Cell("rnn_tanh", 1, _rnn(Point.tanh), _rnn_back(Point.by_tanh)),
        Cell("rnn_relu", 1, _rnn(_relu), _rnn_back(_by_relu)),
    )
}
