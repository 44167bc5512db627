"""LSTM, GRU and RNN whose recurrent product takes matrix tiles: the equations in float64, with weights and states rounded to bfloat16."""

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.kernels.recurrent import recurrent_scratch_bytes, recurrent_tasks
from anycann.codegen.kernels.recurrent_packing import pack_weights
from anycann.codegen.kernels.recurrent_shape import RecurrentTile, default_recurrent_tile
from anycann.codegen.kernels.recurrent_tiles import multiplies_by_tiles
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere
from tests.codegen.kernels.test_recurrent import CELLS, HOST, Layer, layer, operands, reference, write

TILES = replace(by_name("avx512"), features=by_name("avx512").features + ",+avx512bf16,+amx-tile,+amx-bf16")
OPTIONS: dict[str, dict[str, object]] = {
    "one sequence": {"batch": 1, "direction": "bidirectional"},
    "sequences of several tasks": {"batch": 21, "direction": "reverse"},
    "lengths, batch first": {"batch": 5, "has_lengths": True, "layout": 1, "direction": "bidirectional"},
    "variants": {"batch": 3, "linear_before_reset": True, "has_peepholes": True, "clip": 1.5},
}


def check_bfloat(v: Layer, tile: RecurrentTile) -> None:
    arrays = operands(v, HOST, tile)
    assert arrays[1].dtype == dtypes.bfloat16.numpy
    e = write(v.shape, HOST, tile, dtypes.bfloat16)
    Compiled(e, "recurrent", HOST, recurrent_scratch_bytes(v.shape, HOST, tile))(arrays, recurrent_tasks(v.shape, tile), 2)
    y, y_h, y_c = arrays[6:]
    if v.shape.layout == 1:
        y, y_h, y_c = y.transpose(1, 2, 0, 3), y_h.swapaxes(0, 1), y_c.swapaxes(0, 1)
    for got, exact in zip((y, y_h, y_c) if v.shape.cell == "LSTM" else (y, y_h), reference(v), strict=False):
        np.testing.assert_allclose(got, exact, rtol=0, atol=3e-2)


@pytest.mark.skipif(not multiplies_by_tiles(layer("LSTM", hidden=64).shape, HOST), reason="this processor has no matrix tiles")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("hidden", [64, 100, 145])
@pytest.mark.parametrize("name", OPTIONS)
def test_layers_are_those_of_the_equations(cell: str, hidden: int, name: str) -> None:
    v = layer(cell, hidden=hidden, **OPTIONS[name])
    check_bfloat(replace(v, r=v.r * np.float32(2 / hidden**0.5)), default_recurrent_tile(v.shape, HOST, by_tiles=True))


@pytest.mark.parametrize("cell", CELLS)
def test_tiles_compile_on_any_machine(cell: str) -> None:
    shape = layer(cell, hidden=70, batch=18).shape
    assert multiplies_by_tiles(shape, TILES)
    assert not any(multiplies_by_tiles(shape, target) for target in NAMED.values())
    e = write(shape, TILES, default_recurrent_tile(shape, TILES, by_tiles=True), dtypes.bfloat16)
    assert "tdpbf16ps" in "\n".join(e.lines)
    assert_compiles_everywhere(lambda t: write(shape, t, default_recurrent_tile(shape, t, by_tiles=True), dtypes.bfloat16), [TILES])


@pytest.mark.parametrize("cell", CELLS)
def test_weights_lie_as_tiles_read_them(cell: str) -> None:
    v = layer(cell, hidden=70, direction="bidirectional")
    shape, tile = v.shape, default_recurrent_tile(v.shape, TILES, by_tiles=True)
    flat = pack_weights(shape, tile, TILES.lanes, v.w, v.r, v.b, v.p).panels.astype(np.float32)
    width, start = tile.width(TILES.lanes), 0
    for phase in shape.phases:
        blocks = -(-70 // width)
        size = 2 * blocks * len(phase) * width * 96
        tiles = flat[start : start + size].reshape(2, blocks, len(phase) * width // 16, 48, 16, 2)
        direction, block, cell_of_state, gate, column = 1, blocks - 1, 69, len(phase) - 1, 2
        number = gate * width + column
        found = tiles[direction, block, number // 16, cell_of_state // 2, number % 16, cell_of_state % 2]
        wanted = v.r.reshape(2, shape.gates, 70, 70)[direction, phase[gate], block * width + column, cell_of_state]
        assert found == np.float32(np.asarray(wanted, dtypes.bfloat16.numpy))
        assert not tiles[:, :, :, 35:].any()
        start += size
    assert start == flat.size
