"""LSTM, GRU and RNN whose steps are launches: the equations in float64, and that sessions of two threads share a step."""

from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent import recurrent_scratch_bytes
from anycann.codegen.kernels.recurrent_pairs import multiplies_by_pairs
from anycann.codegen.kernels.recurrent_shape import RecurrentTile, default_recurrent_tile
from anycann.codegen.kernels.recurrent_state import Pointers
from anycann.codegen.kernels.recurrent_steps import emit_recurrent_step, launch_tasks, state_bytes, stepped
from anycann.codegen.kernels.recurrent_words import may_take_words
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runnable
from tests.codegen.kernels.test_recurrent import CELLS, HOST, Layer, compare, layer, operands, quantised_by_columns, reference

OPTIONS: dict[str, dict[str, object]] = {
    "one sequence": {"batch": 1},
    "reverse, batch first": {"batch": 3, "direction": "reverse", "layout": 1},
    "lengths": {"batch": 5, "has_lengths": True, "direction": "reverse"},
    "variants": {"batch": 2, "linear_before_reset": True, "has_peepholes": True, "clip": 1.5},
}


def write(v: Layer, target: Target, tile: RecurrentTile, panels: DType) -> Emitter:
    e, has_c = Emitter(), v.shape.cell == "LSTM"
    slots = [e.argument(i) for i in range(11)]
    lengths, initial_c, y_c = (slots[5] if v.shape.has_lengths else None), (slots[4] if has_c else None), (slots[8] if has_c else None)
    pointers = Pointers(slots[0], slots[1], slots[2], slots[3], initial_c, lengths, slots[6], slots[7], y_c)
    emit_recurrent_step(e, v.shape, target, tile, pointers, slots[9], slots[10], panels)
    return e


def run(v: Layer, target: Target, tile: RecurrentTile) -> list[np.ndarray]:
    """The outputs, after all launches, each in two calls."""
    arrays = operands(v, target, tile)
    e = write(v, target, tile, dtypes.BY_NAME[arrays[1].dtype.name])
    kernel = Compiled(e, "recurrent", target, recurrent_scratch_bytes(v.shape, target, tile))
    states = np.full(state_bytes(v.shape, target, tile) // 4, np.nan, np.float32)
    for number, tasks in enumerate(launch_tasks(v.shape, target, tile)):
        kernel([*arrays, states, np.array([number])], tasks, min(2, tasks))
    return arrays[6:]


def by_steps(v: Layer, target: Target, **options: bool) -> RecurrentTile:
    tile = default_recurrent_tile(v.shape, target, **options)
    return replace(tile, rows=-(-v.shape.batch // tile.task_rows) * tile.task_rows, by_steps=True)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("hidden", [1, 16, 35, 70])
@pytest.mark.parametrize("name", OPTIONS)
def test_layers_are_those_of_the_equations(cell: str, hidden: int, name: str, target: Target) -> None:
    v = layer(cell, hidden=hidden, **OPTIONS[name])
    compare(v, run(v, target, by_steps(v, target)))


@pytest.mark.parametrize("cell", CELLS)
def test_sequences_that_registers_do_not_hold_take_turns(cell: str) -> None:
    v = layer(cell, hidden=50, batch=11)
    tile = by_steps(v, HOST)
    assert tile.takes_turns or tile.rows >= 11
    compare(v, run(v, HOST, replace(tile, rows=12, group=3)))


@pytest.mark.skipif(not multiplies_by_pairs(HOST), reason="this processor has no dot products of bfloat16")
@pytest.mark.parametrize("cell", CELLS)
def test_states_may_be_rounded_to_bfloat16(cell: str) -> None:
    v = layer(cell, hidden=83, batch=3)
    v = replace(v, r=v.r * np.float32(0.2))
    y, *_ = run(v, HOST, by_steps(v, HOST, by_pairs=True))
    np.testing.assert_allclose(y, reference(v)[0], rtol=0, atol=3e-2)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.skipif(not may_take_words(HOST), reason="this processor does not multiply words")
def test_states_may_be_rounded_to_words(cell: str) -> None:
    v = quantised_by_columns(layer(cell, hidden=190, batch=2, rounds_states=True))
    (y, *_), exact = run(v, HOST, by_steps(v, HOST)), reference(v)[0]
    assert 1e-7 < np.linalg.norm(y - exact) / np.linalg.norm(exact) < 2e-4


@pytest.mark.parametrize("cell", CELLS)
def test_steps_compile_for_every_target(cell: str) -> None:
    v = layer(cell, hidden=70, batch=4, has_lengths=True)
    assert_compiles_everywhere(lambda t: write(v, t, by_steps(v, t), dtypes.float32), [*NAMED.values()])


def test_a_step_is_a_launch_where_one_thread_would_have_all_of_it_or_weights_are_far() -> None:
    target = by_name("avx512")

    def is_stepped(batch: int, hidden: int, **options: object) -> bool:
        shape = layer("LSTM", hidden=hidden, batch=batch, **options).shape
        return stepped(shape, target, default_recurrent_tile(shape, target)).by_steps

    assert is_stepped(1, 256)
    assert is_stepped(8, 1024)
    assert not is_stepped(1, 32), "a step would be over before another thread is there"
    assert not is_stepped(1, 256, direction="bidirectional")
    assert not is_stepped(64, 256), "there are enough sequences to share out"


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_two_threads_share_the_steps_of_a_model(cell: str) -> None:
    v = layer(cell, hidden=200, batch=2, steps=7)
    v = replace(v, r=v.r * np.float32(0.1))
    constants = {"w": v.w, "r": v.r, "b": v.b}
    node = helper.make_node(cell, ["x", "w", "r", "b"], ["y", "h"], hidden_size=200)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, v.x.shape)
    results = [onnx.ValueInfoProto(name=name) for name in ("y", "h")]
    graph = helper.make_graph([node], "layer", [x], results, [numpy_helper.from_array(a, name) for name, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    still = replace(v, h=np.zeros_like(v.h), c=np.zeros_like(v.c))
    want = reference(still)
    for threads in (1, 2):
        session = InferenceSession(model, SessionOptions(num_threads=threads, poison=True))
        for _ in range(3):
            y, h = session.run(None, {"x": v.x})
            np.testing.assert_allclose(y, want[0], rtol=0, atol=3e-5)
            np.testing.assert_allclose(h, want[1], rtol=0, atol=3e-5)
