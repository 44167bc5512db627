"""Transposed convolution without scatter: each output residue is an ordinary convolution with stride 1.

Output o of an axis with stride s, padding p and dilation d sums the taps k for which i = (o + p - k * d) / s is an input position. Outputs
o = phase + s * q of one phase share their taps, every (s / gcd(s, d))-th one, and their inputs lie at q + constant: read from the last tap
to the first, that is a convolution over q with stride 1 and dilation d / gcd(s, d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import gcd, prod

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.computed_weights import Piece
from anycann.codegen.kernels.convolution import emit_tasks
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_inputs import source
from anycann.codegen.kernels.convolution_kernel import INLINE_CYCLES, DirectKernel, Initial, Write
from anycann.codegen.kernels.convolution_method import packed_size
from anycann.codegen.kernels.convolution_packing import pack_weights
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile
from anycann.codegen.kernels.convolution_write import digits, spill_area
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target

TileOf = Callable[[ConvolutionShape, Target, bool], ConvolutionTile]


@dataclass(frozen=True)
class PhaseRun:
    """Neighbouring phases of one axis that read taps and inputs alike: `kernel` taps at inputs first_input + t * dilation + q."""

    first: int
    count: int
    kernel: int
    first_input: int
    dilation: int


def transposed_flops(shape: ConvolutionShape) -> int:
    """Multiplications and additions: every input meets every tap."""
    return 2 * shape.batch * shape.in_channels * shape.in_pixels * shape.group_outputs * shape.taps


def phase_runs(shape: ConvolutionShape, axis: int) -> tuple[PhaseRun, ...]:
    """The phases 0..stride of an axis in runs. They do not depend on the sizes of the images."""
    runs: list[PhaseRun] = []
    for phase in range(shape.strides[axis]):
        taps = _taps(shape, axis, phase)
        first = (phase + shape.pads_begin[axis] - taps[-1] * shape.dilations[axis]) // shape.strides[axis] if taps else 0
        dilation = shape.dilations[axis] // gcd(shape.strides[axis], shape.dilations[axis])
        last = runs[-1] if runs else None
        if last and (last.kernel, last.first_input) == (len(taps), first):
            runs[-1] = replace(last, count=last.count + 1)
        else:
            runs.append(PhaseRun(phase, 1, len(taps), first, dilation))
    return tuple(runs)


def _taps(shape: ConvolutionShape, axis: int, phase: int) -> list[int]:
    """Taps that the outputs of a phase read."""
    start = phase + shape.pads_begin[axis]
    return [k for k in range(shape.kernel[axis]) if (start - k * shape.dilations[axis]) % shape.strides[axis] == 0]


def _run_combinations(shape: ConvolutionShape) -> Iterator[tuple[PhaseRun, ...]]:
    """One run of each axis, in the order in which their weights are packed."""
    return product(*(phase_runs(shape, axis) for axis in range(len(shape.kernel))))


def pack_transposed_weights(weights: np.ndarray, shape: ConvolutionShape, lanes: int, blocked_input: bool = True) -> np.ndarray:
    """ConvTranspose weights [I, O/group, *kernel] as the packed weights of every phase, one after the other.

    `shape` has the attributes of the ConvTranspose; its in_size and out_size do not matter here.
    """
    inputs, outputs = shape.group_inputs, shape.group_outputs
    grouped = weights.reshape(shape.group, inputs, outputs, *shape.kernel).swapaxes(1, 2)
    ordered = grouped.reshape(shape.out_channels, inputs, *shape.kernel)
    parts = [np.zeros(0, shape.accumulator.numpy)]
    for runs in _run_combinations(shape):
        for phases in product(*(range(run.first, run.first + run.count) for run in runs)):
            taps = [_taps(shape, axis, phase)[::-1] for axis, phase in enumerate(phases)]
            window = ordered[np.ix_(range(shape.out_channels), range(inputs), *taps)]
            parts.append(pack_weights(window, _phase_shape(shape, runs, shape.out_size), lanes, blocked_input).ravel())
    return np.concatenate(parts)


def transposed_pieces(shape: ConvolutionShape, lanes: int, blocked_input: bool = True) -> tuple[Piece, ...]:
    """The taps of every phase that has some and where its packed weights begin, in the order of `pack_transposed_weights`."""
    pieces: list[Piece] = []
    offset = 0
    for runs in _run_combinations(shape):
        size = packed_size(_phase_shape(shape, runs, shape.out_size), lanes, blocked_input)
        for phases in product(*(range(run.first, run.first + run.count) for run in runs)):
            taps = [_taps(shape, axis, phase)[::-1] for axis, phase in enumerate(phases)]
            found = tuple(int(np.ravel_multi_index(tap, shape.kernel)) for tap in product(*taps))
            pieces.append(Piece(offset, found, frozenset(range(len(found)))))
            offset += size
    return tuple(piece for piece in pieces if piece.taps)


def _phase_shape(shape: ConvolutionShape, runs: Sequence[PhaseRun], out_size: Sequence[int]) -> ConvolutionShape:
    """The ordinary convolution that computes one phase."""
    return replace(
        shape,
        kernel=tuple(run.kernel for run in runs),
        strides=(1,) * len(runs),
        dilations=tuple(run.dilation for run in runs),
        pads_begin=tuple(-run.first_input for run in runs),
        out_size=tuple(out_size),
    )


@dataclass(frozen=True)
class _PhaseClass:
    """Phases that one piece of code computes: a box of phases, the first of them, and where the weights of a box of runs begin."""

    shape: ConvolutionShape
    runs: tuple[PhaseRun, ...]
    first: tuple[int, ...]
    counts: tuple[int, ...]
    weights_offset: int

    @property
    def phases(self) -> int:
        return prod(self.counts)


def _classes(shape: ConvolutionShape, lanes: int, blocked_input: bool) -> Iterator[_PhaseClass]:
    offset = 0
    for runs in _run_combinations(shape):
        for parts in product(*(_by_output_count(shape, axis, run) for axis, run in enumerate(runs))):
            phase_shape = _phase_shape(shape, runs, [size for _, _, size in parts])
            first, counts = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
            if phase_shape.out_pixels:
                yield _PhaseClass(phase_shape, runs, first, counts, offset)
        offset += prod(run.count for run in runs) * packed_size(_phase_shape(shape, runs, shape.out_size), lanes, blocked_input)


def _by_output_count(shape: ConvolutionShape, axis: int, run: PhaseRun) -> list[tuple[int, int, int]]:
    """(first phase, count, outputs of each): the run cut where later phases have one output less."""
    parts: list[tuple[int, int, int]] = []
    for phase in range(run.first, run.first + run.count):
        outputs = max(0, -(-(shape.out_size[axis] - phase) // shape.strides[axis]))
        if parts and parts[-1][2] == outputs:
            parts[-1] = (parts[-1][0], parts[-1][1] + 1, outputs)
        else:
            parts.append((phase, 1, outputs))
    return parts


def emit_transposed_convolution(
    e: Emitter,
    shape: ConvolutionShape,
    target: Target,
    input_pointer: Value,
    weights: Value,
    write: Write,
    blocked_input: bool = True,
    initial: Initial | None = None,
    zero_point: Value | None = None,
    tile_of: TileOf = default_tile,
) -> int:
    """Write the tasks e.begin..e.end of a ConvTranspose with the attributes of `shape` (out_size includes output_padding).

    Operands and callbacks as in `emit_convolution`, the weights from `pack_transposed_weights`; `tile_of(phase shape, target,
    blocked_input)` chooses the tile of each phase. Returns the number of tasks.
    """
    if shape.batch == 0 or shape.out_pixels == 0:
        return 0

    def kernel_of(phase: ConvolutionShape) -> DirectKernel:
        inputs = source(phase, target.lanes, blocked_input, input_pointer, zero_point)
        tile = replace(tile_of(phase, target, blocked_input), depth=0)
        return DirectKernel(phase, target, tile, inputs, weights, write, initial, blocked_input)

    kernels = [(c, kernel_of(c.shape)) for c in _classes(shape, target.lanes, blocked_input)]
    total = sum(c.phases * kernel.tasks for c, kernel in kernels)
    small = sum(c.phases * kernel.cycles for c, kernel in kernels) < INLINE_CYCLES
    begin, end = (e.const(0), e.const(total)) if small else (e.begin, e.end)
    spill = spill_area(e, [kernel for _, kernel in kernels])
    base = 0
    for phase_class, kernel in kernels:
        count = phase_class.phases * kernel.tasks
        low, high = (e.sub(e.smin(e.smax(edge, e.const(base)), e.const(base + count)), base) for edge in (begin, end))
        with e.loop(e.udiv(low, kernel.tasks), e.udiv(e.add(high, kernel.tasks - 1), kernel.tasks)) as phases:
            done = e.mul(phases.index, kernel.tasks)
            first, stop = e.smax(e.const(0), e.sub(low, done)), e.smin(e.const(kernel.tasks), e.sub(high, done))
            emit_tasks(e, _of_phase(e, shape, phase_class, kernel, phases.index), first, stop, spill)
        base += count
    return 1 if small else total


def _of_phase(e: Emitter, shape: ConvolutionShape, phase_class: _PhaseClass, kernel: DirectKernel, number: Value) -> DirectKernel:
    """The kernel of phase `number` of a class: its own weights, its results at every stride-th output."""
    steps = digits(e, number, phase_class.counts)
    phases = [e.add(step, first) for step, first in zip(steps, phase_class.first, strict=True)]
    at = e.const(0)
    for phase, run in zip(phases, phase_class.runs, strict=True):
        at = e.add(e.mul(at, run.count), e.sub(phase, run.first))
    at = e.add(e.mul(at, packed_size(phase_class.shape, kernel.lanes, kernel.blocked_input)), phase_class.weights_offset)

    def write(e: Emitter, index: Sequence[Value], vector: Value) -> None:
        spatial = [e.add(e.mul(q, stride), phase) for q, stride, phase in zip(index[2:], shape.strides, phases, strict=True)]
        kernel.write(e, [*index[:2], *spatial], vector)

    return replace(kernel, weights=e.gep(kernel.weights, at, shape.accumulator.register), write=write)
