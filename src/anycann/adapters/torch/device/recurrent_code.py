"""Recurrent layers by generated code (`recurrent_ir.py`), on npu tensors where they lie: all steps of a layer in one call, and back.

torch does the products of all steps at once: those by the input, and the gradients by the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from anycann.adapters.torch.device.machine_code import address_of, load
from anycann.adapters.torch.device.recurrent_cells_ir import CELLS, Word
from anycann.adapters.torch.device.recurrent_ir import backward_ir, forward_ir
from anycann.support.records import dataclass

Tensors = Sequence[Any]
_Code = Callable[[Any], None]
_pack = Struct(f"{len(Word)}q").pack
_BYTES = 4  # of a float
_TRANSPOSE_FROM, _LARGE = 4, 1 << 14  # steps, and their multiplications for a row: from there on it pays to turn the weight round for BLAS


@dataclass(frozen=True)
class Plan:
    """A call of a recurrent operator beside its tensors. `cell`: a key of `CELLS`; `one_step`: of a cell, without an axis for steps."""

    cell: str
    layers: int = 1
    directions: int = 1
    biases: bool = True
    batch_first: bool = False
    one_step: bool = False

    @property
    def each(self) -> int:
        """Weights of a layer in one direction: by the input, by the state, and their biases."""
        return 4 if self.biases else 2

    @property
    def gated(self) -> bool:
        """Whether the way back needs the gates."""
        return CELLS[self.cell].gates > 1

    @property
    def states(self) -> int:
        """The hidden state, and the cell state of an LSTM."""
        return 2 if self.cell == "lstm" else 1

    def fits(self, x: Any, states: Tensors, weights: Tensors) -> bool:
        """Whether the sizes of all agree, and none is zero: the code asks for nothing. x is (steps, rows, inputs), or (rows, inputs)."""
        state, axes = states[0].shape, 2 if self.one_step else 3
        if x.dim() != axes or len(state) != axes or not x.numel() or not states[0].numel() or len(states) != self.states:
            return False
        rows, width, inputs = x.shape[-3 if self.batch_first else -2], state[-1], x.shape[-1]
        whole = (rows, width) if self.one_step else (self.layers * self.directions, rows, width)
        return all(one.shape == whole for one in states) and [one.shape for one in weights] == self._sizes(inputs, width)

    def _sizes(self, inputs: int, width: int) -> list[tuple[int, ...]]:
        """Of the weights."""
        gates, sizes = CELLS[self.cell].gates * width, []
        for layer in range(self.layers):
            by_input = (gates, self.directions * width if layer else inputs)
            sizes += [by_input, (gates, width), (gates,), (gates,)][: self.each] * self.directions
        return sizes


class Steps(NamedTuple):
    """What the way back through one layer in one direction needs, beside states, weights and outputs."""

    x: Any  # (steps * rows, inputs)
    gates: Any  # (steps * rows, gates * width)
    cells: Any  # (steps, rows, width): of an LSTM
    parts: Any  # (steps, rows, width): of a GRU


@cache
def code(cell: str) -> tuple[_Code, _Code] | None:
    """What computes the steps of a layer, and the way back; None where code cannot run, or torch brings no BLAS that can be called."""
    if not _multiply():
        return None
    from anycann.target.target import host

    made = [write(CELLS[cell], host().lanes) for write in (forward_ir, backward_ir)]
    try:
        forward, backward = (load(name, ir).address(name) for name, ir in made)
    except Exception:  # no place for code, or LLVM does not know the processor
        return None
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return call(forward), call(backward)


@cache
def _multiply() -> int:
    """The address of sgemm; 0 if this torch keeps it to itself."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    return address_of(library.sgemm_) if hasattr(library, "sgemm_") else 0


class Layers:
    """All layers of one call; `x`, `states` and `weights` as `Plan.fits` says, of float32 on one npu; without gradients."""

    def __init__(self, plan: Plan, x: Any, states: Tensors, weights: Tensors):
        self.plan, self.x, self.weights = plan, x, weights
        self.states = [state.contiguous() for state in states]
        self.rows, self.width = states[0].shape[-2:]
        self.steps = x.numel() // (self.rows * x.shape[-1])
        self.run = plan.directions * self.width
        self.gates = CELLS[plan.cell].gates * self.width
        codes = code(plan.cell)
        assert codes is not None
        self._code, self._code_back = codes

    def forward(self, keep: bool) -> tuple[list[Any], list[Any], list[Steps]]:
        """The results of the operator; for the way back, if it shall be kept, the outputs of all layers and their steps.

        No result is among what is kept: programs write into it, as they may where torch computes the steps.
        """
        last = [torch.empty_like(state) for state in self.states]
        x, outputs, steps = self._by_steps(self.x), [], []
        for layer in range(self.plan.layers):
            outputs.append(last[0] if self.plan.one_step else self._output())
            y, x = self._by_steps(outputs[-1]), x.reshape(self.steps * self.rows, -1)
            steps += [self._forward(x, y, last, place, keep) for place in self._places(layer)]
            x = y
        result = outputs[-1].clone() if keep else outputs[-1]
        return [result, *last[1:]] if self.plan.one_step else [result, *last], outputs, steps

    def backward(self, given: Tensors, outputs: Tensors, kept: Sequence[Steps], wanted: Sequence[bool]) -> list[Any]:
        """The gradients by x, the states and the weights, where `wanted`, from those by the results, of which some may be None.

        `outputs` are those of all layers. They and what was kept have their sizes, but hooks of saved tensors may have laid them out anew.
        """
        by_states = [self._or_zeros(one, state) for one, state in zip(given[-self.plan.states :], self.states, strict=True)]
        gradient = self._gradient(None if self.plan.one_step else given[0])
        by_weights: list[Any] = []
        for layer in reversed(range(self.plan.layers)):
            y, by_x = self._by_steps(outputs[layer]).contiguous().view(self.steps, self.rows, self.run), None
            found: list[Any] = []
            for place in self._places(layer):
                by_sums, by_products = self._backward(kept[place], y, gradient, by_states, place)
                found += self._by_weights(kept[place].x, y, by_sums, by_products, place, wanted[1 + self.plan.states :])
                if layer or wanted[0]:
                    by_input = self.weights[place * self.plan.each]
                    by_x = by_sums @ by_input if by_x is None else by_x.addmm_(by_sums, by_input)
            gradient, by_weights = by_x, found + by_weights
        return [self._as_x(gradient), *by_states, *by_weights]

    def _by_steps(self, tensor: Any) -> Any:
        return tensor.transpose(0, 1) if self.plan.batch_first else tensor

    def _places(self, layer: int) -> range:
        """Of a layer's directions among all."""
        return range(layer * self.plan.directions, (layer + 1) * self.plan.directions)

    def _output(self) -> Any:
        """Steps lie one behind another, whatever axis comes first."""
        sizes, strides = (self.steps, self.rows, self.run), (self.rows * self.run, self.run, 1)
        if self.plan.batch_first:
            sizes, strides = (self.rows, self.steps, self.run), (self.run, self.rows * self.run, 1)
        return self.x.new_empty_strided(sizes, strides)

    def _forward(self, x: Any, y: Any, last: list[Any], place: int, keep: bool) -> Steps:
        """One layer in one direction: writes its part of y (steps, rows, directions * width), and its states after the last step."""
        by_input, by_state, *biases = self.weights[place * self.plan.each : (place + 1) * self.plan.each]
        sums = linear(x, by_input, biases[0] if biases else None)
        transposed = self.steps >= _TRANSPOSE_FROM and self.steps * by_state.numel() >= _LARGE
        weight = (by_state.t() if transposed else by_state).contiguous()
        bias = biases[1].contiguous() if biases else self.x.new_zeros(self.gates)
        room = (self.steps if keep else 1, self.rows, self.width)
        cells = self.x.new_empty(room) if keep and self.plan.cell == "lstm" else None
        parts, products = (self.x.new_empty(room), self.x.new_empty(self.rows, self.gates)) if self.plan.cell == "gru" else (None, None)
        own = (int(transposed), _at(bias), _at(products), 0, 0, 0)
        self._run(self._code, Steps(x, sums, cells, parts), weight, y, last, place, own)
        return Steps(x, sums if self.plan.gated else None, cells, parts)

    def _backward(self, steps: Steps, y: Any, gradient: Any, by_states: list[Any], place: int) -> tuple[Any, Any]:
        """The gradients by the sums of gates, and by the products by the state in them; those by the states in their places."""
        by_sums = self.x.new_empty(self.steps * self.rows, self.gates)
        by_products = torch.empty_like(by_sums) if self.plan.cell == "gru" else by_sums
        weight = self.weights[place * self.plan.each + 1].contiguous()
        steps = Steps(*(None if one is None else one.contiguous() for one in steps))
        start = _at(gradient) + place % self.plan.directions * self.width * _BYTES
        self._run(self._code_back, steps, weight, y, by_states, place, (0, 0, 0, start, _at(by_sums), _at(by_products)))
        return by_sums, by_products

    def _run(self, code: _Code, steps: Steps, weight: Any, y: Any, states: list[Any], place: int, own: tuple[int, ...]) -> None:
        """One layer in one direction, there or back: `states` are written, `own` are the last words."""
        one, direction, (_, gates, cells, parts) = self.rows * self.width, place % self.plan.directions, steps
        skip, first_cell, cell = place * one * _BYTES, 0, 0
        if self.plan.cell == "lstm":
            first_cell, cell = _at(self.states[1]) + skip, _at(states[1]) + skip
        strides = (one if cells is not None else 0, one if parts is not None and len(parts) > 1 else 0)
        code(
            _pack(
                self.steps, self.rows, self.width, direction, self.rows * self.run, self.run, *strides, _multiply(),
                _at(weight), _at(gates), _at(self.states[0]) + skip, first_cell, _at(y) + direction * self.width * _BYTES,
                _at(cells) or cell, _at(parts), _at(states[0]) + skip, cell, *own,
            )
        )  # fmt: skip

    def _gradient(self, given: Any) -> Any:
        """By the output of the last layer: (steps, rows, directions * width)."""
        if given is None:
            return self.x.new_zeros(self.steps, self.rows, self.run)
        return self._by_steps(given).contiguous()

    def _or_zeros(self, given: Any, state: Any) -> Any:
        return torch.zeros_like(state) if given is None else given.clone(memory_format=torch.contiguous_format)

    def _as_x(self, gradient: Any) -> Any:
        """(steps * rows, inputs) with the axes of x."""
        if gradient is None or self.plan.one_step:
            return gradient
        return self._by_steps(gradient.view(self.steps, self.rows, -1))

    def _by_weights(self, x: Any, y: Any, by_sums: Any, by_products: Any, place: int, wanted: Sequence[bool]) -> list[Any]:
        by_input, by_state, *biases = wanted[place * self.plan.each : (place + 1) * self.plan.each]
        found = [by_sums.t() @ x if by_input else None, self._by_state(y, by_products, place) if by_state else None]
        same = by_products is by_sums and all(biases)
        if biases:
            found.append(by_sums.sum(0) if biases[0] else None)
            found.append(found[-1] if same else by_products.sum(0) if biases[1] else None)
        return found

    def _by_state(self, y: Any, by_products: Any, place: int) -> Any:
        """The gradient by the weight by the state: of the first state, and of all outputs but the last, in the order of the steps."""
        first = self.states[0].view(-1, self.rows, self.width)[place]
        if self.steps == 1:
            return by_products.t() @ first
        direction, rows = place % self.plan.directions, self.rows
        own = y[..., direction * self.width : (direction + 1) * self.width]
        if direction:
            before, begin, rest = own[1:], by_products[-rows:], by_products[:-rows]
        else:
            before, begin, rest = own[:-1], by_products[:rows], by_products[rows:]
        return torch.addmm(begin.t() @ first, rest.t(), before.flatten(0, 1))


def _at(tensor: Any) -> int:
    """Where its memory is; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()
