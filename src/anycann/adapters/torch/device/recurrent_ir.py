"""The generated code of `recurrent_code.py`: the steps of one recurrent layer in one direction, and the way back through them.

The products by the input are done for all steps before. A step adds the product by the state, with the BLAS that torch brings, and computes
the equations of the cell a vector at a time. All sizes are known at call time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anycann.adapters.torch.device.recurrent_cells_ir import Cell, Layer, Point, Word
from anycann.codegen.emitter import Emitter
from anycann.codegen.values import INDEX, POINTER, Value, vector_type

_SIZES = (*range(Word.MULTIPLY), Word.TRANSPOSED)


def forward_ir(cell: Cell, lanes: int) -> tuple[str, str]:
    """(symbol, module): all steps of a layer; `args` are the words, the other arguments are not used."""
    e = Emitter()
    product = _Product(e)
    with _steps(e, cell, back=False) as layer:
        places, gates = _places(layer), layer.gates_width
        target = layer.word(Word.PRODUCTS) if cell.name == "gru" else layer.of_step(Word.SUMS, gates)
        hidden, run = places["hidden before"]
        product.by_state(layer, (hidden, run), target, adds=cell.name != "gru")
        _for_each_vector(layer, places, lanes, cell.forward)
    return e.finish(f"{cell.name}_steps")


def backward_ir(cell: Cell, lanes: int) -> tuple[str, str]:
    """(symbol, module): the gradients by the sums of all steps, and by the first states."""
    e = Emitter()
    product = _Product(e)
    with _steps(e, cell, back=True) as layer:
        places = _places(layer)
        _for_each_vector(layer, places, lanes, cell.backward)
        source = places["by products" if cell.name == "gru" else "by sums"]
        product.by_gradient(layer, source, layer.word(Word.HIDDEN), adds=cell.name == "gru")
    return e.finish(f"{cell.name}_steps_back")


@contextmanager
def _steps(e: Emitter, cell: Cell, back: bool) -> Iterator[Layer]:
    words = {word: _word(e, word) for word in Word}
    steps = words[Word.STEPS]
    last = e.sub(steps, 1)
    reverse = e.compare("eq", words[Word.REVERSE], e.const(int(not back)))
    with e.loop(0, steps) as loop:
        time = e.select(reverse, e.sub(last, loop.index), loop.index)
        downwards = e.compare("eq", words[Word.REVERSE], e.const(1))
        begin = e.select(downwards, last, e.const(0))
        before = e.select(downwards, e.add(time, 1), e.sub(time, 1))
        yield Layer(e, words, cell, time, e.compare("eq", time, begin), before)


def _word(e: Emitter, word: Word) -> Value:
    type_ = INDEX if word in _SIZES else POINTER
    return e.load(e.gep(e.args, int(word), INDEX), type_, 8)


def _places(layer: Layer) -> dict[str, tuple[Value, Value]]:
    """Where the rows of this step begin, and how far apart they are; bias and states have one for all steps."""
    e, width, gates = layer.e, layer.word(Word.WIDTH), layer.gates_width
    run, stride = layer.word(Word.RUN), e.mul(layer.time, layer.word(Word.STRIDE))
    cells, parts = (e.mul(layer.time, layer.word(word)) for word in (Word.CELLS_STRIDE, Word.PARTS_STRIDE))
    return {
        "sums": (layer.of_step(Word.SUMS, gates), gates),
        "bias": (layer.word(Word.BIAS), e.const(0)),
        "products": (layer.word(Word.PRODUCTS), gates),
        "y": (layer.floats(Word.Y, stride), run),
        "hidden before": layer.state_before(Word.Y, Word.FIRST_HIDDEN, Word.STRIDE, run),
        "cells": (layer.floats(Word.CELLS, cells), width),
        "cell before": layer.state_before(Word.CELLS, Word.FIRST_CELL, Word.CELLS_STRIDE, width),
        "parts": (layer.floats(Word.PARTS, parts), width),
        "hidden": (layer.word(Word.HIDDEN), width),
        "cell": (layer.word(Word.CELL), width),
        "gradient": (layer.floats(Word.GRADIENT, stride), run),
        "by sums": (layer.of_step(Word.BY_SUMS, gates), gates),
        "by products": (layer.of_step(Word.BY_PRODUCTS, gates), gates),
    }


def _for_each_vector(layer: Layer, places: dict[str, tuple[Value, Value]], lanes: int, write: Callable[[Point], None]) -> None:
    """Whole vectors of each row, then one cell after the other."""
    e, width = layer.e, layer.word(Word.WIDTH)
    whole = e.sub(width, e.urem(width, lanes))
    with e.loop(0, layer.word(Word.ROWS)) as rows:
        for start, stop, many in ((e.const(0), whole, lanes), (whole, width, 1)):
            with e.loop(start, stop, many) as loop:
                write(Point(layer, places, rows.index, loop.index, vector_type("float", many)))


class _Product:
    """Calls of sgemm, which takes everything by address and counts columns first: its C is our C transposed."""

    def __init__(self, e: Emitter):
        self.e = e
        self.sizes = [e.op("alloca i64", POINTER) for _ in range(6)]  # read as 32 bits or as 64: the lower half comes first
        self.letters = [e.op("alloca i8", POINTER) for _ in range(2)]
        self.scales = [e.op("alloca float", POINTER) for _ in range(2)]
        e.store(e.const(1.0, "float"), self.scales[0], 4)
        e.store(e.const(ord("N"), "i8"), self.letters[1], 1)

    def by_state(self, layer: Layer, state: tuple[Value, Value], target: Value, adds: bool) -> None:
        """target (rows, gates width) = state (rows, width) times the weight transposed, added to what is there or not."""
        e, width, gates = self.e, layer.word(Word.WIDTH), layer.gates_width
        transposed = e.compare("eq", layer.word(Word.TRANSPOSED), e.const(1))
        e.store(e.select(transposed, e.const(ord("N"), "i8"), e.const(ord("T"), "i8")), self.letters[0], 1)
        apart = e.select(transposed, gates, width)
        self._call(layer, (gates, layer.word(Word.ROWS), width), (apart, state[1], gates), state[0], target, adds)

    def by_gradient(self, layer: Layer, source: tuple[Value, Value], target: Value, adds: bool) -> None:
        """target (rows, width) = source (rows, gates width) times the weight (gates width, width)."""
        e, width, gates = self.e, layer.word(Word.WIDTH), layer.gates_width
        e.store(e.const(ord("N"), "i8"), self.letters[0], 1)
        self._call(layer, (width, layer.word(Word.ROWS), gates), (width, source[1], width), source[0], target, adds)

    def _call(self, layer: Layer, sizes: tuple[Value, ...], apart: tuple[Value, ...], b: Value, c: Value, adds: bool) -> None:
        e = self.e
        for place, size in zip(self.sizes, (*sizes, *apart), strict=True):
            e.store(size, place, 8)
        e.store(e.const(float(adds), "float"), self.scales[1], 4)
        (m, n, k, lda, ldb, ldc), (one, kept), a = self.sizes, self.scales, layer.word(Word.WEIGHT)
        given = (*self.letters, m, n, k, one, a, lda, b, ldb, kept, c, ldc)
        e.do(f"call void {layer.word(Word.MULTIPLY).text}({', '.join(f'ptr {value.text}' for value in given)})")
