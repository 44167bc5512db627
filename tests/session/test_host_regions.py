"""What follows a list whose length only running tells: the host computes it for a length that comes now and then, else a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.graph.bounded_node import MOST_NUMBERS, BoundedNode
from anycann.just_in_time import JustInTimeCompiler, Ready
from anycann.om.plan import TensorSpec
from anycann.runtime.open_sizes import REGION_IN_A_ROW, REGION_SECONDS
from anycann.support.errors import ModelError, UnsupportedError
from tests.session.models import assert_agrees, by_onnx_runtime, floats, offline, parse

Shapes: TypeAlias = list[tuple[int | str | None, ...]]

ROWS = 40
CHOSEN = """g (float[40] x, float[40,16] w) => (float[n,4] y, int64[n] at) <int64 zero = {0}, float half = {0.5}> {
    chosen = Greater(x, half) places = NonZero(chosen) at = Gather<axis=0>(places, zero)
    rows = Gather<axis=0>(w, at) p = MatMul(rows, k) s = Softmax<axis=1>(p) e = Exp(p) y = Mul(s, e) }"""
BOXES = """g (float[1,40,4] boxes, float[1,2,40] scores) => (float[n,4] chosen, float[n] best, int64[n,3] at)
    <int64[1] most = {100}, float[1] overlap = {0.5}, float[1] least = {0.5}, int64 two = {2}, int64[1] all = {-1}, int64[1] first = {0}> {
    at = NonMaxSuppression(boxes, scores, most, overlap, least) number = Gather<axis=1>(at, two)
    flat = Squeeze(boxes, first) corners = Gather<axis=0>(flat, number)
    large = ReduceMax<keepdims=0>(scores, one) rows = Reshape(large, all) best = Gather(rows, number)
    side = Unsqueeze(best, one) scaled = Mul(corners, side) chosen = Clip(scaled, nothing) }"""


SORTED = """g (float[40] scores, float[40,6] w) => (float[m,6] y, int64[m] kinds, float[m,1] first)
    <float half = {0.5}, int64[1] all = {-1}, int64[1] most = {9}, int64 zero = {0}, int64[1] one = {1}> {
    found = Greater(scores, half) places = NonZero(found) turned = Transpose(places) kept = GatherND(scores, turned)
    n = Shape(kept) k = Min(n, most) best, order = TopK<axis=0>(kept, k) rows = GatherND(w, turned) y = Gather(rows, order)
    kinds = ArgMax<axis=1, keepdims=0>(y) column = Unsqueeze(kinds, one) first = GatherElements<axis=1>(y, column) }"""


def chosen() -> onnx.ModelProto:
    return parse(CHOSEN, k=floats(16, 4, seed=3))


def boxes() -> onnx.ModelProto:
    return parse(BOXES, one=np.array([1]), nothing=np.float32(0))


def ordered() -> onnx.ModelProto:
    return parse(SORTED)


def scored(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds of rows with scores, some of them equal, of which so many are enough."""
    scores = np.zeros(40, np.float32)
    scores[np.random.default_rng(seed).permutation(40)[:count]] = np.arange(count) % 5 + 1
    return {"scores": scores, "w": floats(40, 6, seed=seed)}


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds of which so many rows are chosen."""
    x = np.zeros(ROWS, np.float32)
    x[np.random.default_rng(seed).permutation(ROWS)[:count]] = 1
    return {"x": x, "w": floats(ROWS, 16, seed=seed)}


def found(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Feeds of boxes that lie apart, of which so many score enough."""
    corners = np.array([[10 * n, 0, 10 * n + 5, 5 + n] for n in range(40)], np.float32)
    scores = np.zeros((1, 2, 40), np.float32)
    scores[0, seed % 2, np.random.default_rng(seed).permutation(40)[:count]] = 0.75
    return {"boxes": corners[None], "scores": scores}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Shapes:
    """The shape of the first input of every region that is compiled."""
    shapes: Shapes = []
    compile_ = JustInTimeCompiler.compile_region

    def watched(self: JustInTimeCompiler, region: str, specs: Sequence[TensorSpec]) -> Ready:
        shapes.append(specs[0].shape)
        return compile_(self, region, specs)

    monkeypatch.setattr(JustInTimeCompiler, "compile_region", watched)
    return shapes


@pytest.mark.parametrize("kind", ["onnx", "om"])
@pytest.mark.parametrize(("model", "feeds"), [(chosen, rows), (boxes, found), (ordered, scored)], ids=["rows", "boxes", "scores"])
def test_nothing_is_compiled_for_a_list_of_another_length_at_every_call(
    kind: str, model: Callable[[], onnx.ModelProto], feeds: Callable[[int, int], dict[str, np.ndarray]], compiled: Shapes, tmp_path: Path
) -> None:
    session = InferenceSession(model()) if kind == "onnx" else offline(model(), tmp_path)
    for seed, count in enumerate((5, 12, 0, 1, 40, 5, 7, 7, 31, 0, 2)):
        assert_agrees(model(), feeds(count, seed), session)
    assert compiled == []


def test_the_first_call_of_an_offline_model_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = offline(chosen(), tmp_path)
    monkeypatch.setattr(JustInTimeCompiler, "__init__", None)
    assert_agrees(chosen(), rows(9), session)


@pytest.mark.parametrize("count", [0, 6])
def test_a_length_that_stays_is_compiled(count: int, compiled: Shapes) -> None:
    session = InferenceSession(chosen())
    assert_agrees(chosen(), rows(11), session)
    for seed in range(REGION_IN_A_ROW + 3):
        assert len(compiled) == (seed >= REGION_IN_A_ROW)
        assert_agrees(chosen(), rows(count, seed), session)
    assert compiled == [(1, count)]
    for count_again in (3, count, 4, count):
        assert_agrees(chosen(), rows(count_again), session)
    assert len(compiled) == 1


def test_a_length_whose_runs_took_as_long_as_compiling_is_compiled(compiled: Shapes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.runtime.open_sizes.REGION_SECONDS", 0.0)
    session = InferenceSession(chosen())
    for count in (3, 4, 3, 4):
        assert_agrees(chosen(), rows(count), session)
    assert compiled == [(1, 3), (1, 4)]
    assert REGION_SECONDS > 0


@pytest.mark.parametrize(
    "options",
    [SessionOptions(poison=True), SessionOptions(fuse=False), SessionOptions(switched_off=frozenset({"open sizes"}))],
    ids=["poison", "unfused", "off"],
)
def test_every_length_may_be_compiled(options: SessionOptions, compiled: Shapes) -> None:
    session = InferenceSession(chosen(), options)
    for count in (3, 4):
        assert_agrees(chosen(), rows(count), session)
    assert compiled == [(1, 3), (1, 4)]


def test_a_model_in_another_precision_is_compiled(compiled: Shapes) -> None:
    session = InferenceSession(chosen(), SessionOptions(precision_mode="mixed_bfloat16"))
    session.run(None, rows(3))
    assert compiled == [(1, 3)]


def test_what_numpy_is_slow_at_is_compiled(compiled: Shapes) -> None:
    text = """g (float[40] x) => (float[1,1,n] y) <float[1,1,3] w = {1,2,3}, int64[3] sizes = {1,1,-1}> {
        places = NonZero(x) floats = Cast<to=1>(places) row = Reshape(floats, sizes) y = Conv<pads=[1,1]>(row, w) }"""
    session = InferenceSession(parse(text))
    for count in (3, 4):
        assert_agrees(parse(text), {"x": rows(count)["x"]}, session)
    assert compiled == [(1, 3), (1, 4)]


def test_what_is_large_is_compiled(compiled: Shapes) -> None:
    text = """g (float[3000] x) => (float r) { places = NonZero(x) floats = Cast<to=1>(places) column = Transpose(floats)
        pairs = Sub(floats, column) r = ReduceMax<keepdims=0>(pairs) }"""
    session = InferenceSession(parse(text))
    for count in (2900, 10):
        x = np.zeros(3000, np.float32)
        x[:count] = 1
        assert_agrees(parse(text), {"x": x}, session)
    assert compiled == [(1, 2900)]


def test_a_model_that_is_wrong_for_some_lengths_is_refused_as_it_was() -> None:
    text = """g (float[40] x) => (float[n] y) {
        places = NonZero(x) floats = Cast<to=1>(places) row = Squeeze(floats) y = Softmax<axis=0>(row) }"""
    session = InferenceSession(parse(text))
    assert_agrees(parse(text), {"x": rows(3)["x"]}, session)
    for _ in range(3):
        with pytest.raises(ModelError, match="while running deferred"):
            session.run(None, {"x": rows(1)["x"]})


def test_large_weights_are_not_kept_twice(compiled: Shapes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.host_regions.MOST_CONSTANT_BYTES", 100)
    session = InferenceSession(chosen())
    assert_agrees(chosen(), rows(3), session)
    assert compiled == [(1, 3)]


def test_an_index_outside_of_a_tensor_reads_the_nearest_element_as_ever() -> None:
    text = """g (float[40] x, float[5] w) => (float[1,n] y) { places = NonZero(x) y = Gather(w, places) }"""
    session = InferenceSession(parse(text))
    for chosen_places in ([1, 3, 4], [2, 30], [7]):
        x = np.zeros(ROWS, np.float32)
        x[chosen_places] = 1
        w = np.arange(5, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "w": w})[0], [np.minimum(chosen_places, 4)])


def test_threads_share_a_region() -> None:
    model = chosen()
    session = InferenceSession(model, num_threads=2)
    feeds = [rows(count, count) for count in (1, 5, 5, 9, 0, 30, 2, 2, 2, 2, 2, 17)]
    wanted = [by_onnx_runtime(model, each) for each in feeds]

    def work(_: int) -> int:
        for each, wants in zip(feeds, wanted, strict=True):
            for got, want in zip(session.run(None, each), wants, strict=True):
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        return len(feeds)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [len(feeds)] * 4


def test_results_are_arrays_of_their_own() -> None:
    text = """g (float[40] x, float[40] w) => (int64[1,n] places, int64[1,n] same, float[40] w2) {
        places = NonZero(x) same = Identity(places) w2 = Relu(w) }"""
    session = InferenceSession(parse(text))
    for count in (3, 4):
        feeds = {"x": rows(count)["x"], "w": np.abs(floats(40))}
        results = session.run(None, feeds)
        assert all(result.flags.writeable and result.flags.c_contiguous for result in results)
        assert not any(np.shares_memory(a, b) for a in results for b in (*results, *feeds.values()) if a is not b)


# ---- nodes
def bounded(op_type: str, *operands: object, **attributes: object) -> np.ndarray:
    node = helper.make_node(op_type, [f"x{number}" for number in range(len(operands))], ["y"], **attributes)
    result = BoundedNode(node, 21)(operands)[0]
    assert isinstance(result, np.ndarray)
    return result


SIDE = 2100  # whose square is more than a node may compute
LARGE = [
    ("Add", [floats(SIDE, 1), floats(SIDE)]),
    ("Where", [np.ones((SIDE, 1), bool), floats(SIDE), floats(1)]),
    ("MatMul", [floats(SIDE, 1), floats(1, SIDE)]),
    ("MatMul", [floats(9, 1, 300, 300), floats(10, 300, 300)]),
    ("Gemm", [floats(SIDE, 1), floats(1, SIDE)]),
    ("Expand", [floats(1), np.array([SIDE, SIDE])]),
    ("Tile", [floats(SIDE), np.array([SIDE])]),
    ("ConstantOfShape", [np.array([SIDE, SIDE])]),
    ("Range", [np.array(0), np.array(-MOST_NUMBERS - 1), np.array(-1)]),
    ("Gather", [floats(2, SIDE), np.zeros(SIDE, np.int64)]),
    ("GatherND", [floats(2, SIDE), np.zeros((SIDE, 1), np.int64)]),
    ("GatherElements", [floats(SIDE, SIDE), np.zeros((SIDE, SIDE), np.int64)]),
    ("Exp", [np.zeros(MOST_NUMBERS + 1, np.float32)]),
]


@pytest.mark.parametrize(("op_type", "operands"), LARGE, ids=[op_type for op_type, _ in LARGE])
def test_a_node_refuses_many_numbers(op_type: str, operands: Sequence[np.ndarray]) -> None:
    with pytest.raises(UnsupportedError, match="numbers"):
        bounded(op_type, *operands)


def test_a_node_computes_fewer() -> None:
    """Large operands may be read in part, and views cost nothing."""
    data = np.zeros((3, MOST_NUMBERS), np.float32)
    assert bounded("Gather", data, np.array([5]), axis=1).shape == (3, 1)
    assert bounded("Slice", data, np.array([1]), np.array([2])).shape == (1, MOST_NUMBERS)
    assert bounded("MatMul", floats(5), floats(5)).shape == ()
    assert bounded("MatMul", floats(5), floats(2, 5, 3)).shape == (2, 3)
    assert bounded("Cast", floats(2), to=TensorProto.INT64).dtype == np.int64


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [
        ("Add", [floats(2), np.ones(2)]),
        ("Exp", [floats(2).astype(np.float16)]),
        ("Identity", [[floats(2)]]),
        ("Add", [floats(2), floats(3)]),
        ("ReduceMean", [floats(0)]),
        ("Softmax", [floats()]),
        ("TopK", [floats(0, 4), np.array([6])]),
    ],
    ids=["two types", "float16", "a list", "sizes", "a mean of nothing", "no axis", "too many"],
)
def test_a_node_refuses_what_numpy_would_take_otherwise(op_type: str, operands: Sequence[object]) -> None:
    with pytest.raises(UnsupportedError):
        bounded(op_type, *operands)


@pytest.mark.parametrize(("shape", "places", "axis"), [((3, 4), (0,), 0), ((3, 4), (2, 0), 1), ((0, 4), (0,), 1), ((3, 0), (2,), 0)])
def test_gather_of_nothing_has_the_sizes_it_should(shape: tuple[int, ...], places: tuple[int, ...], axis: int) -> None:
    result = bounded("Gather", np.zeros(shape, np.float32), np.zeros(places, np.int64), axis=axis)
    assert result.shape == (*shape[:axis], *places, *shape[axis + 1 :])


def test_one_point_is_a_number() -> None:
    assert bounded("GatherND", floats(5, 4), np.array([2, 3])).shape == ()
