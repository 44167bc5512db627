"""LSTM, GRU and RNN whose recurrent product takes dot products of bfloat16: the equations in float64."""

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.kernels.recurrent_packing import pack_weights
from anycann.codegen.kernels.recurrent_pairs import multiplies_by_pairs
from anycann.codegen.kernels.recurrent_shape import RecurrentTile, default_recurrent_tile
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes
from tests.codegen.kernels.jit import assert_compiles_everywhere
from tests.codegen.kernels.test_recurrent import CELLS, HOST, layer, write
from tests.codegen.kernels.test_recurrent_tiles import OPTIONS, check_bfloat

PAIRS = replace(by_name("avx512"), features=by_name("avx512").features + ",+avx512bf16")
here = pytest.mark.skipif(not multiplies_by_pairs(HOST), reason="this processor has no dot products of bfloat16")


@here
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("hidden", [1, 16, 35, 64, 145])
@pytest.mark.parametrize("name", OPTIONS)
def test_layers_are_those_of_the_equations(cell: str, hidden: int, name: str) -> None:
    v = layer(cell, hidden=hidden, **OPTIONS[name])
    check_bfloat(replace(v, r=v.r * np.float32(2 / hidden**0.5)), default_recurrent_tile(v.shape, HOST, by_pairs=True))


@here
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("tile", [RecurrentTile(3, 2, by_pairs=True), RecurrentTile(6, 1, group=3, by_pairs=True)])
def test_sequences_take_turns(cell: str, tile: RecurrentTile) -> None:
    v = layer(cell, hidden=83, batch=8, has_lengths=True)
    check_bfloat(replace(v, r=v.r * np.float32(0.2)), tile)


@pytest.mark.parametrize("cell", CELLS)
def test_pairs_compile_on_any_machine(cell: str) -> None:
    shape = layer(cell, hidden=70, batch=18).shape
    assert multiplies_by_pairs(PAIRS)
    assert not any(multiplies_by_pairs(target) for target in NAMED.values())
    e = write(shape, PAIRS, default_recurrent_tile(shape, PAIRS, by_pairs=True), dtypes.bfloat16)
    assert "dpbf16ps" in "\n".join(e.lines)
    assert_compiles_everywhere(lambda t: write(shape, t, default_recurrent_tile(shape, t, by_pairs=True), dtypes.bfloat16), [PAIRS])


@pytest.mark.parametrize("cell", CELLS)
def test_weights_of_two_cells_lie_beside_each_other(cell: str) -> None:
    v = layer(cell, hidden=35, direction="bidirectional")
    shape, tile = v.shape, default_recurrent_tile(v.shape, PAIRS, by_pairs=True)
    flat = pack_weights(shape, tile, PAIRS.lanes, v.w, v.r, v.b, v.p).panels.astype(np.float32)
    width, start = tile.width(PAIRS.lanes), 0
    for phase in shape.phases:
        blocks = -(-35 // width)
        size = 2 * blocks * len(phase) * width * 36
        panels = flat[start : start + size].reshape(2, blocks, 18, len(phase), width, 2)
        wanted = v.r.reshape(2, shape.gates, 35, 35)[1, phase[-1], (blocks - 1) * width + 1, 33]
        assert panels[1, blocks - 1, 16, len(phase) - 1, 1, 1] == np.float32(np.asarray(wanted, dtypes.bfloat16.numpy))
        assert not panels[:, :, 17, :, :, 1].any()
        start += size
    assert start == flat.size
