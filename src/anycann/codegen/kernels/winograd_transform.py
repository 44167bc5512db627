"""The small matrices of Winograd's algorithms, as sums on vectors, and the transformed weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import fills_registers
from anycann.codegen.kernels.convolution_products import multiply_add
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.winograd_algorithm import LineAlgorithm, Phase, WinogradAlgorithm
from anycann.codegen.kernels.winograd_bundles import most_channels
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target

_PRODUCTS = 240_000  # of one call: it stays in the cache, and OpenBLAS wakes no threads, which from 2**18 on wait longer than they compute


def pack_winograd_weights(weights: np.ndarray, shape: ConvolutionShape, lanes: int, algorithm: WinogradAlgorithm) -> np.ndarray:
    """Weights [O, I/group, *planes, height, width] as float32 [O blocks, points, planes * channels, lanes]: transformed in double
    precision, absent output channels zero. The channels of a block are those of its groups (`channels_of`), others of its weights are zero.

    G g G^T of many filters is one product: (G kron G) [points, taps] times the filters [taps, planes * I * lanes].
    """
    both_ways = np.kron(algorithm.rows.weights, algorithm.columns.weights)
    points, taps_of_plane = both_ways.shape
    filters = weights.reshape(shape.out_channels, shape.group_inputs, -1, taps_of_plane).transpose(3, 2, 1, 0)
    channels = most_channels(shape, lanes)
    depth = filters.shape[1] * channels
    packed = np.empty((shape.out_blocks(lanes), points, depth * lanes), np.float32)
    taps = np.zeros((taps_of_plane, filters.shape[1], channels, lanes))
    step = min(max(lanes, _PRODUCTS // both_ways.size // lanes * lanes), depth * lanes)
    products = np.empty((points, step))
    for block, rows in enumerate(packed):
        _fill_block(taps, filters, shape, block)
        columns = taps.reshape(taps_of_plane, -1)
        for start in range(0, depth * lanes, step):
            part = columns[:, start : start + step]
            rows[:, start : start + step] = np.matmul(both_ways, part, out=products[:, : part.shape[1]])
    return packed.reshape(-1, points, depth, lanes)


def _fill_block(taps: np.ndarray, filters: np.ndarray, shape: ConvolutionShape, block: int) -> None:
    """taps [taps, planes, channels, lanes] of an output channel block from filters [taps, planes, I/group, O]."""
    lanes, inputs, outputs = taps.shape[-1], shape.group_inputs, shape.group_outputs
    start, stop = block * lanes, min((block + 1) * lanes, shape.out_channels)
    taps[:] = 0
    for number, group in enumerate(range(start // outputs, -(-stop // outputs))):
        first, last = max(start, group * outputs), min(stop, (group + 1) * outputs)
        taps[:, :, number * inputs : (number + 1) * inputs, first - start : last - start] = filters[..., first:last]


Read = Callable[[int, int], Value]
Transform = Callable[[Emitter, Target, LineAlgorithm, Sequence[Value]], list[Value]]


def transform_input(e: Emitter, target: Target, algorithm: WinogradAlgorithm, patch: Sequence[Value]) -> list[Value]:
    """B d B^T of a patch, row by row."""
    return _both_ways(e, target, algorithm, patch, _input)


# Patches of more vectors for each register are transformed line by line: LLVM spills more of them than it keeps. With AVX2 the transform of
# 6 x 6 takes 0.65 to 0.85 of the time, of 8 x 8 0.7 to 0.85 (5 x 5 of 128 channels of 20 x 20 as a whole 0.92), of 5 x 5 0.9 to 1.1.
_MOST_AT_ONCE = 2


def goes_by_lines(target: Target, algorithm: WinogradAlgorithm) -> bool:
    """True if a patch is transformed by `transform_input_by_lines`."""
    return fills_registers(target) and algorithm.rows.patch * algorithm.columns.patch > _MOST_AT_ONCE * target.registers


def transform_input_by_lines(
    e: Emitter, target: Target, algorithm: WinogradAlgorithm, read: Read, lines: Sequence[Value], write: Callable[[int, Value], None]
) -> None:
    """`transform_input` of the patch that `read(row, column)` loads; `write(point, value)` stores each value.

    Columns wait at the pointers `lines`, as many as values, memory that the compiler must take for anybody's: so it moves no load of a line
    into the one before, and has registers for each.
    """
    rows, columns, register = algorithm.rows, algorithm.columns, vector_type("float", target.lanes)
    for j in range(columns.patch):
        e.keep_order()
        for i, value in enumerate(_input(e, target, rows, [read(i, j) for i in range(rows.patch)])):
            e.store(value, lines[i * columns.patch + j], 4 * target.lanes)
    for i in range(rows.points):
        e.keep_order()
        line = [e.load(pointer, register, 4 * target.lanes) for pointer in lines[i * columns.patch : (i + 1) * columns.patch]]
        for j, value in enumerate(_input(e, target, columns, line)):
            write(i * columns.points + j, value)


def transform_output(e: Emitter, target: Target, algorithm: WinogradAlgorithm, products: Sequence[Value]) -> list[Value]:
    """A m A^T of the products: the results, row by row."""
    return _both_ways(e, target, algorithm, products, _output)


def transform_weights(e: Emitter, target: Target, algorithm: WinogradAlgorithm, taps: Sequence[Value]) -> list[Value]:
    """G g G^T of the taps of a plane: its points, row by row."""
    return _both_ways(e, target, algorithm, taps, _weights)


@lru_cache(maxsize=64)
def transform_instructions(algorithm: WinogradAlgorithm, target: Target) -> tuple[int, int]:
    """Instructions on vectors that transform a patch, and products: arithmetic, loads and stores."""
    rows, columns = algorithm.rows, algorithm.columns
    down, across = _arithmetic(rows, target, _input, rows.patch), _arithmetic(columns, target, _input, columns.patch)
    there = rows.patch * columns.patch + algorithm.points + columns.patch * down + rows.points * across
    down, across = _arithmetic(rows, target, _output, rows.points), _arithmetic(columns, target, _output, columns.points)
    back = algorithm.points + rows.results * columns.results + columns.points * down + rows.results * across
    return there, back


def _arithmetic(line: LineAlgorithm, target: Target, transform: Transform, count: int) -> int:
    """Instructions of one transform of `count` vectors."""
    e = Emitter()
    transform(e, target, line, [Value("undef", vector_type("float", target.lanes))] * count)
    return len(e.lines)


def _both_ways(e: Emitter, target: Target, algorithm: WinogradAlgorithm, values: Sequence[Value], transform: Transform) -> list[Value]:
    """`transform` on every column of a matrix, then on every row of the result."""
    width = len(values) // _sources(algorithm.rows, transform)
    columns = [transform(e, target, algorithm.rows, values[j::width]) for j in range(width)]
    return [value for i in range(len(columns[0])) for value in transform(e, target, algorithm.columns, [column[i] for column in columns])]


def _sources(line: LineAlgorithm, transform: Transform) -> int:
    return line.patch if transform is _input else line.points if transform is _output else line.taps


def _input(e: Emitter, target: Target, line: LineAlgorithm, d: Sequence[Value]) -> list[Value]:
    """B d, phase by phase."""
    return [value for phase in line.phases for value in _points(e, target, phase.inputs, phase, d[phase.first :: line.stride])]


def _weights(e: Emitter, target: Target, line: LineAlgorithm, g: Sequence[Value]) -> list[Value]:
    """G g, phase by phase."""
    return [value for phase in line.phases for value in _points(e, target, phase.weights, phase, g[phase.first :: line.stride])]


def _points(e: Emitter, target: Target, matrix: np.ndarray, phase: Phase, values: Sequence[Value]) -> list[Value]:
    """The matrix times the values. The rows of points that differ in sign share their even and their odd part."""
    found: list[Value] = []
    for i, row in enumerate(matrix):
        if i in phase.pairs:
            even, odd = _summed(e, target, (row + matrix[i + 1]) / 2, values), (row - matrix[i + 1]) / 2
            factor = odd[np.flatnonzero(odd)[-1]]
            rest = _summed(e, target, odd / factor, values)
            found += [_added(e, target, rest, factor, even), _added(e, target, rest, -factor, even)]
        elif i - 1 not in phase.pairs:
            found.append(_summed(e, target, row, values))
    return found


def _output(e: Emitter, target: Target, line: LineAlgorithm, m: Sequence[Value]) -> list[Value]:
    """A m of all phases. Points that differ in sign are added up for even powers, subtracted for odd ones."""
    columns: list[tuple[np.ndarray, Value]] = []
    start = 0
    for phase in line.phases:
        matrix, values = phase.outputs, list(m[start : start + phase.points])
        start += phase.points
        for i in phase.pairs:
            even = np.where(matrix[:, i] == matrix[:, i + 1], matrix[:, i], 0.0)
            added, taken = (e.binary(name, values[i], values[i + 1]) for name in ("fadd", "fsub"))
            columns += [(even, added), (matrix[:, i] - even, taken)]
        alone = [i for i in range(phase.points) if i not in phase.pairs and i - 1 not in phase.pairs]
        columns += [(matrix[:, i], values[i]) for i in alone]
    return [_summed(e, target, np.array([column[i] for column, _ in columns]), [v for _, v in columns]) for i in range(line.results)]


def _summed(e: Emitter, target: Target, factors: np.ndarray, values: Sequence[Value]) -> Value:
    """The sum of the values by their factors: those of 1 first, the last first."""
    terms = sorted(((float(f), v) for f, v in zip(factors, values, strict=True) if f), key=lambda term: term[0] == 1, reverse=True)
    ones = [v for f, v in terms if f == 1]
    total = ones.pop() if ones else e.binary("fmul", terms[0][1], e.const(terms[0][0], terms[0][1].type))
    for value in reversed(ones):
        total = e.binary("fadd", total, value)
    rest = [term for term in terms if term[0] != 1]
    for factor, value in reversed(rest if len(rest) < len(terms) else rest[1:]):
        total = _added(e, target, value, factor, total)
    return total


def _added(e: Emitter, target: Target, value: Value, factor: float, to: Value) -> Value:
    """value * factor + to."""
    if abs(factor) == 1:
        return e.binary("fadd" if factor > 0 else "fsub", to, value)
    return multiply_add(e, target, value, e.const(float(factor), value.type), to)
