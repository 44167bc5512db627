"""The weights of a recurrent layer in the order its kernel reads them; everything here happens once, at compile time.

Hidden cells are taken in blocks of the tile's width. A row of gates (the input projection of one step) is [direction][block][gate][cell],
so that a block finds its sums side by side; the cells beyond `hidden` in the last block are zero and never leave the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.support.records import dataclass
from anycann.te import dtypes

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RecurrentWeights:
    """projection [inputs, gate_columns] and bias [gate_columns]: gates = X projection + bias, a matrix product the caller emits.

    panels: R for the kernel, per phase [direction][block][hidden][gate][cell], flat. Each step reads them all again, so they are kept in
    what holds every one as it is: bfloat16, or int8 for large ones that were quantised, of which a block begins with the float32
    [gate][cell] that its columns are multiples of. There two rows of int8 lie cell by cell beside each other, if states are rounded to
    words. Products of bfloat16 take them rounded to it: by matrix tiles in the order of these, by dot products cell by cell like words.
    vectors [direction][row][padded hidden]: what the cell adds or multiplies, the three peepholes i, o, f of an LSTM or the recurrent bias
    of the candidate of a GRU.
    """

    projection: Array
    bias: Array
    panels: npt.NDArray[np.generic]
    vectors: Array


def blocks_of(shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> int:
    """Blocks of hidden cells."""
    return -(-shape.hidden // tile.width(lanes))


def padded_hidden(shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> int:
    """Hidden cells rounded up to whole blocks."""
    return blocks_of(shape, tile, lanes) * tile.width(lanes)


_TILE_DEPTH, _TILE_COLUMNS = 32, 16


def panel_depth(shape: RecurrentShape, tile: RecurrentTile) -> int:
    """Rows of weights in a panel: one for each hidden cell, for matrix tiles whole tiles of them, for words and dot products pairs."""
    whole = _TILE_DEPTH if tile.by_tiles else 2 if shape.rounds_states or tile.by_pairs else 1
    return -(-shape.hidden // whole) * whole


def gate_columns(shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> int:
    """Elements of a row of gates: the columns of the input projection."""
    return shape.directions * shape.gates * padded_hidden(shape, tile, lanes)


def pack_weights(
    shape: RecurrentShape, tile: RecurrentTile, lanes: int, w: Array, r: Array, b: Array | None = None, p: Array | None = None
) -> RecurrentWeights:
    """W[D, G H, I], R[D, G H, H], B[D, 2 G H], P[D, 3 H] of ONNX in the order of the kernel."""
    directions, gates, hidden = shape.directions, shape.gates, shape.hidden
    bias = np.zeros((directions, 2, gates, hidden), np.float32) if b is None else b.reshape(directions, 2, gates, hidden)
    total = bias.sum(1)
    separate = np.zeros((directions, 0, hidden), np.float32)
    if shape.cell == "GRU" and shape.linear_before_reset:
        total[:, 2], separate = bias[:, 0, 2], bias[:, 1, 2:]
    elif shape.cell == "LSTM" and shape.has_peepholes and p is not None:
        separate = p.reshape(directions, 3, hidden)
    arrange = _tiles if tile.by_tiles else _pairs if tile.by_pairs else _narrowest
    columns = _blocks(w.reshape(directions, gates, hidden, shape.inputs), shape, tile, lanes)
    return RecurrentWeights(
        np.ascontiguousarray(columns.reshape(-1, shape.inputs).T),
        np.ascontiguousarray(_blocks(total[..., None], shape, tile, lanes).reshape(-1)),
        arrange(r.reshape(directions, gates, hidden, hidden), shape, tile, lanes),
        np.ascontiguousarray(_pad(separate[..., None], padded_hidden(shape, tile, lanes))[..., 0]),
    )


def whole_projection(shape: RecurrentShape, tile: RecurrentTile, lanes: int, w: Array) -> tuple[npt.NDArray[np.int8], Array] | None:
    """`RecurrentWeights.projection` as whole numbers, and [1, gate_columns] what its columns are multiples of; None if it is not that."""
    multiples = _multiples(w.reshape(shape.directions, shape.gates, shape.hidden, shape.inputs))
    if multiples is None:
        return None
    numbers, steps = (_blocks(part, shape, tile, lanes) for part in multiples)
    return np.ascontiguousarray(numbers.reshape(-1, shape.inputs).T), np.ascontiguousarray(steps.reshape(1, -1))


HEAD_ROWS = 4  # rows of int8 that a row of float32 takes
_LARGE_BYTES = 1 << 17  # weights of a direction that are read faster than they are widened are less


def _narrowest(r: Array, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> npt.NDArray[np.generic]:
    multiples = _multiples(r) if r[0].nbytes >= _LARGE_BYTES else None
    if multiples is not None:
        numbers, steps = (_panels(part, shape, tile, lanes) for part in multiples)
        numbers = [_in_pairs(part) if shape.rounds_states else part for part in _deepened(numbers, panel_depth(shape, tile))]
        parts = [_headed(*phase, shape.directions) for phase in zip(numbers, steps, strict=True)]
        return np.concatenate(parts)
    deep = _deepened(_panels(r, shape, tile, lanes), panel_depth(shape, tile))
    panels = np.concatenate([part.reshape(-1) for part in deep]).astype(np.float32)
    narrow = panels.astype(dtypes.bfloat16.numpy)
    return narrow if np.array_equal(narrow.astype(np.float32), panels) else panels


def _tiles(r: Array, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> npt.NDArray[np.generic]:
    """For each phase [direction][block][tile of 16 columns][pair of cells][column][cell of the pair], in bfloat16, flat."""
    parts = []
    for deep in _deepened(_panels(r, shape, tile, lanes), panel_depth(shape, tile)):
        directions, blocks, _, *columns = deep.shape
        pairs = deep.reshape(directions, blocks, -1, 2, int(np.prod(columns)) // _TILE_COLUMNS, _TILE_COLUMNS)
        parts.append(pairs.transpose(0, 1, 4, 2, 5, 3).reshape(-1))
    return np.concatenate(parts).astype(dtypes.bfloat16.numpy)


def _pairs(r: Array, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> npt.NDArray[np.generic]:
    """For each phase [direction][block][pair of cells][gate][cell][one of the pair], in bfloat16, flat."""
    parts = [_in_pairs(part).reshape(-1) for part in _deepened(_panels(r, shape, tile, lanes), panel_depth(shape, tile))]
    return np.concatenate(parts).astype(dtypes.bfloat16.numpy)


def _multiples(r: Array) -> tuple[npt.NDArray[np.int8], Array] | None:
    """(whole numbers, steps [D, G, hidden, 1]) whose product is exactly R[D, G, hidden, x], with one step a direction or a column."""
    for steps in (_steps(r.reshape(len(r), -1)), _steps(r.reshape(-1, r.shape[-1]))):
        if steps is not None:
            step = np.broadcast_to(steps.reshape(len(r), *(r.shape[1:3] if len(steps) > len(r) else (1, 1)), 1), (*r.shape[:3], 1))
            return np.rint(r / step).astype(np.int8), step
    return None


def _steps(lines: Array) -> Array | None:
    """[n, 1]: of each line what all of it is multiples of, -127 to 127 times. Its least element is that, or a multiple of it."""
    least = np.min(np.abs(lines), axis=1, keepdims=True, where=lines != 0, initial=np.inf)
    steps = np.where(np.isfinite(least), least, 1).astype(np.float32)
    found = _are_multiples(lines, steps)
    if 2 * found.sum() < len(lines):
        return None
    for line in np.flatnonzero(~found):
        quotient = steps[line] / np.arange(1, 128, dtype=np.float32)
        tried = np.concatenate([quotient, np.nextafter(quotient, np.float32(0)), np.nextafter(quotient, np.float32(np.inf))])[:, None]
        fitting = np.flatnonzero(_are_multiples(lines[line], tried))
        if not len(fitting):
            return None
        steps[line] = tried[fitting[0]]
    return steps


def _are_multiples(lines: Array, steps: Array) -> npt.NDArray[np.bool_]:
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        numbers = np.rint(lines / steps)
        return np.asarray(((np.abs(numbers) <= 127) & (numbers * steps == lines)).all(axis=-1))


def _headed(numbers: npt.NDArray[np.int8], steps: Array, directions: int) -> npt.NDArray[np.int8]:
    """Panels [D, blocks, hidden, gate, cell] behind their steps [D, blocks, 1, gate, cell], flat."""
    blocks = numbers.shape[1]
    head = np.ascontiguousarray(steps, np.float32).view(np.int8).reshape(directions, blocks, HEAD_ROWS, -1)
    return np.concatenate([head, numbers.reshape(directions, blocks, len(numbers[0, 0]), -1)], axis=2).reshape(-1)


def _deepened(panels: list[Any], depth: int) -> list[Any]:
    """[D, blocks, x, gate, cell] with zeros up to `depth` rows x."""
    return [np.pad(panel, ((0, 0), (0, 0), (0, depth - panel.shape[2]), (0, 0), (0, 0))) for panel in panels]


def _in_pairs(panel: Any) -> Any:
    """[D, blocks, x, gate, cell] with the elements of rows 2 x and 2 x + 1 beside each other, in the same shape."""
    directions, blocks, depth, *columns = panel.shape
    return panel.reshape(directions, blocks, depth // 2, 2, -1).swapaxes(3, 4).reshape(directions, blocks, depth, *columns)


def _pad(weights: Any, size: int) -> Any:
    """[D, G, hidden, x] with zeros up to `size` cells."""
    return np.pad(weights, ((0, 0), (0, 0), (0, size - weights.shape[2]), (0, 0)))


def _blocks(weights: Any, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> Any:
    """[D, G, hidden, x] -> [D, blocks, G, width, x]."""
    padded = _pad(weights, padded_hidden(shape, tile, lanes))
    directions, gates, _, last = padded.shape
    return padded.reshape(directions, gates, -1, tile.width(lanes), last).swapaxes(1, 2)


def _panels(r: Any, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> list[Any]:
    """[D, G, hidden, x] -> for each phase its gates as [D, blocks, x, gate, cell]."""
    return [np.ascontiguousarray(np.moveaxis(_blocks(r[:, list(phase)], shape, tile, lanes), -1, 2)) for phase in shape.phases]
