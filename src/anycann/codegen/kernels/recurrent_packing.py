"""The weights of a recurrent layer in the order its kernel reads them; everything here happens once, at compile time.

Hidden cells are taken in blocks of the tile's width. A row of gates (the input projection of one step) is [direction][block][gate][cell],
so that a block finds its sums side by side; the cells beyond `hidden` in the last block are zero and never leave the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.te import dtypes

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RecurrentWeights:
    """projection [inputs, gate_columns] and bias [gate_columns]: gates = X projection + bias, a matrix product the caller emits.

    panels: R for the kernel, per phase [direction][block][hidden][gate][cell], flat; bfloat16 if that holds every one of them as it is, for
    each step reads them all again. vectors [direction][row][padded hidden]: what the cell
    adds or multiplies, the three peepholes i, o, f of an LSTM or the recurrent bias of the candidate of a GRU.
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
    columns = _blocks(w.reshape(directions, gates, hidden, shape.inputs), shape, tile, lanes)
    return RecurrentWeights(
        np.ascontiguousarray(columns.reshape(-1, shape.inputs).T),
        np.ascontiguousarray(_blocks(total[..., None], shape, tile, lanes).reshape(-1)),
        _narrowest(_panels(r.reshape(directions, gates, hidden, hidden), shape, tile, lanes)),
        np.ascontiguousarray(_pad(separate[..., None], padded_hidden(shape, tile, lanes))[..., 0]),
    )


def _narrowest(panels: Array) -> npt.NDArray[np.generic]:
    narrow = panels.astype(dtypes.bfloat16.numpy)
    return narrow if np.array_equal(narrow.astype(np.float32), panels) else panels


def _pad(weights: Array, size: int) -> Array:
    """[D, G, hidden, x] with zeros up to `size` cells."""
    return np.pad(weights, ((0, 0), (0, 0), (0, size - weights.shape[2]), (0, 0)))


def _blocks(weights: Array, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> Array:
    """[D, G, hidden, x] -> [D, blocks, G, width, x]."""
    padded = _pad(weights, padded_hidden(shape, tile, lanes))
    directions, gates, _, last = padded.shape
    return padded.reshape(directions, gates, -1, tile.width(lanes), last).swapaxes(1, 2)


def _panels(r: Array, shape: RecurrentShape, tile: RecurrentTile, lanes: int) -> Array:
    parts = []
    for phase in shape.phases:
        blocks = _blocks(r[:, list(phase)], shape, tile, lanes)
        parts.append(np.ascontiguousarray(np.moveaxis(blocks, -1, 2)).reshape(-1))
    return np.concatenate(parts).astype(np.float32)
