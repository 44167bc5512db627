"""LSTM, GRU and RNN kernels against the equations of ONNX in float64, with every option, odd sizes and nothing touched outside."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.recurrent import Pointers, emit_recurrent, recurrent_scratch_bytes, recurrent_tasks
from anycann.codegen.kernels.recurrent_packing import gate_columns, pack_weights
from anycann.codegen.kernels.recurrent_shape import (
    DEFAULT_ACTIVATIONS,
    PARAMETERS,
    Activation,
    RecurrentShape,
    RecurrentTile,
    default_recurrent_tile,
    parse_activations,
)
from anycann.codegen.kernels.recurrent_words import may_take_words
from anycann.support.errors import ModelError, UnsupportedError
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, assert_passes_in_child, guarded, runnable

HOST = by_name("host")


@dataclass
class Layer:
    """A layer with random weights; states and peepholes are given to the kernel only where the shape says so."""

    shape: RecurrentShape
    x: np.ndarray
    w: np.ndarray
    r: np.ndarray
    b: np.ndarray
    p: np.ndarray
    h: np.ndarray
    c: np.ndarray
    lengths: np.ndarray


def layer(cell: str, steps: int = 5, batch: int = 3, inputs: int = 4, hidden: int = 20, **options: object) -> Layer:
    """[steps, batch, ...] operands; `options` are fields of RecurrentShape."""
    random = np.random.default_rng()
    shape = RecurrentShape(cell, steps, batch, inputs, hidden, **options)  # type: ignore[arg-type]
    if not shape.activations:
        shape = replace(shape, activations=parse_activations(shape.cell, shape.directions))
    d, g = shape.directions, shape.gates

    def normal(*size: int) -> np.ndarray:
        return (0.4 * random.standard_normal(size)).astype(np.float32)

    return Layer(
        shape,
        2 * normal(steps, batch, inputs),
        normal(d, g * hidden, inputs),
        normal(d, g * hidden, hidden),
        normal(d, 2 * g * hidden),
        normal(d, 3 * hidden) if shape.has_peepholes else np.zeros((d, 3 * hidden), np.float32),
        normal(d, batch, hidden),
        normal(d, batch, hidden),
        random.integers(-1, steps + 2, batch).astype(np.int32) if shape.has_lengths else np.full(batch, steps, np.int32),
    )


# ---- the reference: the equations of the ONNX specification, one sequence and one step at a time
def activation(f: Activation) -> Callable[[np.ndarray], np.ndarray]:
    a, b = f.alpha, f.beta
    return {
        "affine": lambda x: a * x + b,
        "elu": lambda x: np.where(x >= 0, x, a * (np.exp(x) - 1)),
        "hardsigmoid": lambda x: np.minimum(np.maximum(a * x + b, 0), 1),
        "leakyrelu": lambda x: np.where(x >= 0, x, a * x),
        "relu": lambda x: np.maximum(x, 0),
        "scaledtanh": lambda x: a * np.tanh(b * x),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "softplus": lambda x: np.logaddexp(0, x),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "tanh": np.tanh,
        "thresholdedrelu": lambda x: np.where(x >= a, x, 0),
    }[f.name]


def cell_step(s: RecurrentShape, d: int, x: np.ndarray, h: np.ndarray, c: np.ndarray, v: Layer) -> tuple[np.ndarray, np.ndarray]:
    n = s.hidden
    functions = [activation(f) for f in s.activations_of(d)]
    w, r = (m[d].astype(np.float64).reshape(s.gates, n, -1) for m in (v.w, v.r))
    wb, rb = v.b[d].astype(np.float64).reshape(2, s.gates, n)
    limit = s.clip if s.clip is not None else np.inf

    def gate(f: Callable[[np.ndarray], np.ndarray], value: np.ndarray) -> np.ndarray:
        return f(np.clip(value, -limit, limit))

    if s.cell == "RNN":
        return gate(functions[0], w[0] @ x + r[0] @ h + wb[0] + rb[0]), c
    if s.cell == "GRU":
        z = gate(functions[0], w[0] @ x + r[0] @ h + wb[0] + rb[0])
        reset = gate(functions[0], w[1] @ x + r[1] @ h + wb[1] + rb[1])
        product = reset * (r[2] @ h + rb[2]) if s.linear_before_reset else r[2] @ (reset * h) + rb[2]
        return (1 - z) * gate(functions[1], w[2] @ x + product + wb[2]) + z * h, c
    pi, po, pf = v.p[d].astype(np.float64).reshape(3, n)
    i, o, f, g = (w[q] @ x + r[q] @ h + wb[q] + rb[q] for q in range(4))
    i = gate(functions[0], i + pi * c)
    f = 1 - i if s.input_forget else gate(functions[0], f + pf * c)
    new_c = f * c + i * gate(functions[1], g)
    return gate(functions[0], o + po * new_c) * functions[2](new_c), new_c


def reference(v: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Y[steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]."""
    s = v.shape
    y, y_h, y_c = np.zeros((s.steps, s.directions, s.batch, s.hidden)), v.h.astype(np.float64), v.c.astype(np.float64)
    for d in range(s.directions):
        for b in range(s.batch):
            times = list(range(max(0, min(int(v.lengths[b]), s.steps))))
            if s.direction == "reverse" or d == 1:
                times.reverse()
            for t in times:
                y_h[d, b], y_c[d, b] = cell_step(s, d, v.x[t, b].astype(np.float64), y_h[d, b], y_c[d, b], v)
                y[t, d, b] = y_h[d, b]
    return y, y_h, y_c


# ---- the kernel
def write(shape: RecurrentShape, target: Target, tile: RecurrentTile, panels: DType = dtypes.float32) -> Emitter:
    e = Emitter()
    slots = [e.argument(i) for i in range(9)]
    has_c = shape.cell == "LSTM"
    lengths, y_c, initial_c = (slots[5] if shape.has_lengths else None), (slots[8] if has_c else None), (slots[4] if has_c else None)
    pointers = Pointers(slots[0], slots[1], slots[2], slots[3], initial_c, lengths, slots[6], slots[7], y_c)
    emit_recurrent(e, shape, target, tile, pointers, panels)
    return e


def operands(v: Layer, target: Target, tile: RecurrentTile) -> list[np.ndarray]:
    """What the kernel is given, outputs poisoned; the input projection is done here with numpy."""
    s = v.shape
    weights = pack_weights(s, tile, target.lanes, v.w, v.r, v.b, v.p)
    assert weights.projection.shape == (s.inputs, gate_columns(s, tile, target.lanes))
    x, states = v.x, [v.h, v.c]
    y, state = (s.steps, s.directions, s.batch, s.hidden), (s.directions, s.batch, s.hidden)
    if s.layout == 1:
        x, states = x.swapaxes(0, 1), [a.swapaxes(0, 1) for a in states]
        y, state = (s.batch, s.steps, s.directions, s.hidden), (s.batch, s.directions, s.hidden)
    gates = x.reshape(-1, s.inputs) @ weights.projection + weights.bias
    outputs = [np.full(size, np.nan, np.float32) for size in (y, state, state)]
    return [np.ascontiguousarray(a) for a in (gates, weights.panels, weights.vectors, *states, v.lengths)] + outputs


def check(v: Layer, target: Target = HOST, tile: RecurrentTile | None = None) -> None:
    s, tile = v.shape, tile or default_recurrent_tile(v.shape, target)
    arrays = operands(v, target, tile)
    kernel = Compiled(
        write(s, target, tile, dtypes.BY_NAME[arrays[1].dtype.name]), "recurrent", target, recurrent_scratch_bytes(s, target, tile)
    )
    kernel(arrays, recurrent_tasks(s, tile), 2)
    compare(v, arrays[6:])


def compare(v: Layer, outputs: list[np.ndarray]) -> None:
    y, y_h, y_c = outputs
    if v.shape.layout == 1:
        y, y_h, y_c = y.transpose(1, 2, 0, 3), y_h.swapaxes(0, 1), y_c.swapaxes(0, 1)
    for got, exact in zip((y, y_h, y_c) if v.shape.cell == "LSTM" else (y, y_h), reference(v), strict=False):
        np.testing.assert_allclose(got, exact, rtol=3e-5, atol=3e-5 * max(1.0, np.abs(exact).max(initial=0)))


CELLS = ["LSTM", "GRU", "RNN"]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("hidden", [1, 37, 130])
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_weights_that_bfloat16_holds_are_stored_in_it(cell: str, hidden: int, target: Target) -> None:
    v = layer(cell, hidden=hidden, direction="bidirectional", steps=4)
    v = replace(v, r=v.r.astype(dtypes.bfloat16.numpy).astype(np.float32))
    tile = default_recurrent_tile(v.shape, target)
    assert pack_weights(v.shape, tile, target.lanes, v.w, v.r, v.b, v.p).panels.itemsize == 2
    check(v, target)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_large_weights_that_were_quantised_are_stored_as_integers(cell: str, target: Target) -> None:
    v = layer(cell, hidden=190, direction="bidirectional", steps=3)
    numbers = np.random.default_rng(5).integers(-127, 128, v.r.shape).astype(np.float32)
    quantised = replace(v, r=numbers * np.array([0.0031, 0.0017], np.float32).reshape(2, 1, 1))
    tile = default_recurrent_tile(v.shape, target)
    panels = [pack_weights(v.shape, tile, target.lanes, v.w, r, v.b, v.p).panels for r in (v.r, quantised.r, quantised.r * np.float32(3.3))]
    assert [each.dtype for each in panels[:2]] == [np.float32, np.int8]
    assert panels[2].dtype == np.float32  # rounded once more, they are no multiples
    check(quantised, target)


def quantised_by_columns(v: Layer) -> Layer:
    """The layer with weights of 8 bits, each column in steps of its own; one column is all zeros, and one has no odd number."""
    random = np.random.default_rng(7)
    numbers = random.integers(-127, 128, v.r.shape).astype(np.float32)
    numbers[:, 0], numbers[:, 1] = 0, 2 * (numbers[:, 1] // 4) + 2 * (numbers[:, 1] % 2)
    return replace(v, r=numbers * random.uniform(0.001, 0.004, (*v.r.shape[:2], 1)).astype(np.float32))


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_weights_that_were_quantised_column_by_column_are_stored_as_integers(target: Target) -> None:
    v = quantised_by_columns(layer("LSTM", hidden=190, direction="bidirectional", steps=3))
    assert pack_weights(v.shape, default_recurrent_tile(v.shape, target), target.lanes, v.w, v.r, v.b, v.p).panels.dtype == np.int8
    check(v, target)


def in_words(v: Layer, target: Target) -> list[np.ndarray]:
    """What a kernel for weights of 8 bits and states of 16 was given and has made: Y, Y_h and Y_c from the seventh on."""
    tile = default_recurrent_tile(v.shape, target)
    arrays = operands(v, target, tile)
    assert arrays[1].dtype == np.int8
    Compiled(write(v.shape, target, tile, dtypes.int8), "recurrent", target, recurrent_scratch_bytes(v.shape, target, tile))(
        arrays, recurrent_tasks(v.shape, tile), 2
    )
    return arrays


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("size", [(3, 1, 2, 190), (4, 3, 2, 201), (2, 13, 3, 183)], ids=str)
@pytest.mark.parametrize("target", [each for each in runnable() if may_take_words(each)], ids=lambda target: target.name)
def test_states_may_be_rounded_to_words_where_weights_are_integers(cell: str, size: tuple[int, int, int, int], target: Target) -> None:
    v = quantised_by_columns(layer(cell, *size, direction="bidirectional", rounds_states=True))
    v.h[:, 0] *= 10  # what is rounded has a range of its own in each sequence
    v.h[:, -1] = 0
    arrays = in_words(v, target)
    for got, exact in zip(arrays[6:], reference(v)[: 2 + (cell == "LSTM")], strict=False):
        error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        assert error < 2e-4, error
        assert error > 1e-7  # they were rounded


@pytest.mark.parametrize("target", [each for each in runnable() if may_take_words(each)], ids=lambda target: target.name)
def test_a_state_in_words_that_is_no_number_stays_none_in_its_sequence_only(target: Target) -> None:
    v = quantised_by_columns(layer("LSTM", 2, 2, 3, 190, rounds_states=True))
    v.h[0, 1, 5] = np.nan
    arrays = in_words(v, target)
    assert np.isfinite(arrays[6][:, :, 0]).all()
    assert np.isnan(arrays[6][:, :, 1]).all()


@pytest.mark.parametrize("target", [each for each in runnable() if may_take_words(each)], ids=lambda target: target.name)
def test_states_in_words_have_the_range_of_cells_that_the_layer_has(target: Target) -> None:
    """Those that fill the last vector have no bias: here they are 100, and the others are small."""
    activations = parse_activations("RNN", 1, ["Affine"], [1.0], [100.0])
    v = quantised_by_columns(layer("RNN", 2, 3, 2, 190, activations=activations, rounds_states=True))
    v.b[:] = -50
    exact = reference(v)[0]
    assert np.linalg.norm(in_words(v, target)[6] - exact) < 2e-4 * np.linalg.norm(exact)


@pytest.mark.parametrize("rounds_states", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("target", [each for each in runnable() if may_take_words(each)], ids=lambda target: target.name)
def test_cells_that_fill_the_last_vector_may_be_infinite(whole: bool, rounds_states: bool, target: Target) -> None:
    """Without a bias they are more than 2**128, the others nothing."""
    activations = parse_activations("LSTM", 1, ["Affine", "Sigmoid", "Affine"], [1.0, 1.0], [2.0**100, 0.0])
    v = layer("LSTM", 3, 3, 2, 191, activations=activations, rounds_states=rounds_states)
    v.b.reshape(2, 4, 191)[:, :3] = -(2.0**99)  # of W and of R, not of the candidate
    check(quantised_by_columns(v) if whole else v, target)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
def test_every_direction_and_layout_follows_the_equations(cell: str, direction: str, layout: int) -> None:
    check(layer(cell, direction=direction, layout=layout))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("size", [(1, 1, 1, 1), (4, 1, 3, 16), (3, 7, 2, 33), (2, 13, 5, 64), (6, 2, 3, 100)], ids=str)
def test_any_size_works(cell: str, size: tuple[int, int, int, int]) -> None:
    check(layer(cell, *size, direction="bidirectional"))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequences_end_at_their_own_length_and_lengths_out_of_range_are_clamped(cell: str, direction: str) -> None:
    check(layer(cell, 6, 9, direction=direction, has_lengths=True))


def test_peepholes_input_forget_and_clip_follow_the_equations() -> None:
    check(layer("LSTM", has_peepholes=True, direction="bidirectional"))
    check(layer("LSTM", input_forget=True))
    check(layer("LSTM", has_peepholes=True, clip=0.3, hidden=18))
    check(layer("RNN", clip=0.1))


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_a_gru_may_apply_its_reset_gate_after_the_product(direction: str) -> None:
    check(layer("GRU", direction=direction, linear_before_reset=True, clip=0.5))
    check(layer("GRU", 4, 8, 3, 32, direction=direction, linear_before_reset=True))


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_every_activation_of_onnx_follows_its_formula(name: str) -> None:
    for cell in CELLS:
        count = len(DEFAULT_ACTIVATIONS[cell])
        check(layer(cell, 2, activations=parse_activations(cell, 1, [name] * count, [0.4] * count, [0.3] * count)))


def test_the_two_directions_may_have_different_activations() -> None:
    names = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Tanh"]
    check(layer("LSTM", direction="bidirectional", activations=parse_activations("LSTM", 2, names)))


def test_parameters_of_activations_go_to_the_functions_that_take_them_in_order() -> None:
    found = parse_activations("LSTM", 1, ["Tanh", "LeakyRelu", "HardSigmoid"], [0.5, 0.6], [0.7])
    assert found == (Activation("tanh"), Activation("leakyrelu", 0.5), Activation("hardsigmoid", 0.6, 0.7))
    assert parse_activations("GRU", 1, ["HardSigmoid", "Elu"]) == (Activation("hardsigmoid", 0.2, 0.5), Activation("elu", 1.0))


def test_a_wrong_number_of_activations_and_an_unknown_one_are_refused() -> None:
    with pytest.raises(ModelError, match="3 are needed"):
        parse_activations("LSTM", 1, ["Tanh"])
    with pytest.raises(UnsupportedError, match="'Gelu' is not one of affine"):
        parse_activations("RNN", 1, ["Gelu"])


@pytest.mark.parametrize(
    "tile",
    [
        RecurrentTile(1, 1),
        RecurrentTile(2, 2),
        RecurrentTile(5, 1),
        RecurrentTile(1, 3),
        RecurrentTile(7, 1, group=3),
        RecurrentTile(5, 2, group=2),
    ],
    ids=str,
)
def test_any_tile_gives_the_same(tile: RecurrentTile) -> None:
    for cell in CELLS:
        check(layer(cell, 3, 7, 2, 37, direction="bidirectional"), tile=tile)


@pytest.mark.parametrize("cell", CELLS)
def test_sequences_that_take_turns_with_any_kind_of_weights_agree(cell: str) -> None:
    v, tile = layer(cell, 3, 7, 2, 190, has_lengths=True), RecurrentTile(4, 1, group=2)
    numbers = np.random.default_rng(5).integers(-127, 128, v.r.shape).astype(np.float32)
    narrow = v.r.astype(dtypes.bfloat16.numpy).astype(np.float32)
    for r in (v.r, narrow, numbers * np.float32(0.0031)):
        check(replace(v, r=r), tile=tile)


@pytest.mark.parametrize(
    ("batch", "hidden", "rows", "group"), [(1, 384, 1, 1), (8, 384, 8, 4), (8, 128, 4, 4), (16, 384, 18, 6), (64, 512, 18, 6)]
)
def test_tasks_have_about_as_many_sequences_each(batch: int, hidden: int, rows: int, group: int) -> None:
    shape = layer("LSTM", 1, batch, 1, hidden).shape
    tile = default_recurrent_tile(shape, NAMED["avx512"])
    assert (tile.rows, tile.group) == (rows, group)
    assert recurrent_tasks(shape, tile) == -(-batch // group)


@pytest.mark.parametrize(
    ("cell", "batch", "hidden", "rows", "vectors"),
    [
        ("LSTM", 1, 64, 1, 2),  # 8 sums, whose weights are read where they are multiplied
        ("LSTM", 1, 96, 1, 1),  # weights from the second-level cache
        ("LSTM", 16, 64, 3, 1),  # 12 sums, three states and one weight at a time
        ("GRU", 1, 32, 1, 4),
        ("GRU", 1, 96, 1, 2),
        ("GRU", 16, 64, 4, 1),  # 12 sums, three weights and one state at a time
        ("RNN", 16, 64, 6, 2),  # with one vector a state would be read for each multiply-add
    ],
)
def test_sixteen_registers_hold_the_sums_and_the_fewer_of_states_and_weights(
    cell: str, batch: int, hidden: int, rows: int, vectors: int
) -> None:
    tile = default_recurrent_tile(layer(cell, 1, batch, 1, hidden, linear_before_reset=cell == "GRU").shape, NAMED["avx2"])
    assert (tile.rows, tile.vectors) == (rows, vectors)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_every_number_of_sequences_in_registers_agrees(cell: str, batch: int, target: Target) -> None:
    for hidden, before in ((32, False), (64, True), (21, True)):
        check(layer(cell, 3, batch, 3, hidden, linear_before_reset=before and cell == "GRU"), target)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_every_target_that_runs_here_agrees(target: Target) -> None:
    for cell in CELLS:
        check(layer(cell, 4, 5, 3, 21, direction="bidirectional", has_lengths=True), target)


def test_whole_vectors_of_cells_are_stored_without_a_mask() -> None:
    shape = layer("LSTM", hidden=21).shape
    assert "llvm.masked.store" not in write(shape, NAMED["avx2"], default_recurrent_tile(shape, NAMED["avx2"])).finish("lstm")[1]
    assert (
        "i1 true, i1 true, i1 true, i1 true, i1 true, i1 false"
        in write(shape, NAMED["avx512"], default_recurrent_tile(shape, NAMED["avx512"])).finish("lstm")[1]
    )


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles(name: str) -> None:
    for cell in CELLS:
        shape = layer(cell, direction="bidirectional", has_lengths=True).shape
        assert_compiles_everywhere(lambda t, shape=shape: write(shape, t, default_recurrent_tile(shape, t)), [NAMED[name]])


def guarded_cases() -> None:
    """Every operand right before a page that must not be touched, then right behind one."""
    for target in runnable():
        for cell in CELLS:
            for hidden in (16, 21):
                v = layer(cell, 3, 3, 2, hidden, direction="bidirectional", has_lengths=True, has_peepholes=cell == "LSTM")
                tile = default_recurrent_tile(v.shape, target)
                scratch = recurrent_scratch_bytes(v.shape, target, tile)
                kernel = Compiled(write(v.shape, target, tile), "recurrent", target, scratch)
                for memory in guarded(*operands(v, target, tile)):
                    kernel.run([a.address for a in memory], recurrent_tasks(v.shape, tile))
                    compare(v, [a.array for a in memory[6:]])


def test_nothing_is_touched_around_the_operands_or_the_results() -> None:
    assert_passes_in_child("tests.codegen.kernels.test_recurrent", "guarded_cases")


def test_no_steps_leave_the_initial_states() -> None:
    check(layer("LSTM", steps=0))


def test_no_sequences_are_no_tasks() -> None:
    shape = layer("GRU", batch=0).shape
    assert recurrent_tasks(shape, default_recurrent_tile(shape, HOST)) == 0
