"""A session with open shapes, from several threads, and with control flow."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.just_in_time import JustInTimeCompiler, Ready
from anycann.om.plan import TensorSpec
from tests.session.models import OPEN, PRODUCT, Feeds, assert_agrees, floats, offline, parse


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 17, 33), (4, 1, 16)], ids=str)
def test_open_shapes_are_taken_from_the_feeds(shape: tuple[int, ...]) -> None:
    assert_agrees(OPEN, {"x": floats(*shape)})


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)], ids=str)
def test_empty_inputs_give_empty_outputs(shape: tuple[int, ...]) -> None:
    (y,) = InferenceSession(OPEN).run(None, {"x": floats(*shape)})
    assert (y.shape, y.dtype) == (shape, np.float32)


def test_a_product_over_nothing_is_zero() -> None:
    model = parse("g (float[A,K] a, float[K,B] b) => (float[A,B] y) { y = MatMul(a, b) }")
    (y,) = InferenceSession(model, SessionOptions(poison=True)).run(None, {"a": floats(3, 0), "b": floats(0, 4)})
    np.testing.assert_array_equal(y, np.zeros((3, 4)))


SIZED = """g (float[N] x, bool c, float[1] s) => (float[1] y) { n = Shape(x) f = Cast<to=1>(n)
    y = If(c) <then_branch = t () => (float[1] a) { a = Add(s, f) }, else_branch = e () => (float[1] b) { b = Sub(s, f) }> }"""


@pytest.mark.parametrize("kind", ["onnx", "om", "gears"])
def test_branches_know_the_sizes_of_this_run_and_not_of_an_earlier_one(kind: str, tmp_path: Path) -> None:
    model = parse(SIZED)
    gears = tuple({"x": (size,)} for size in (3, 5)) if kind == "gears" else ()
    session = InferenceSession(model) if kind == "onnx" else offline(model, tmp_path, gears=gears)
    for size in (3, 5, 7, 3):
        for condition in (True, False):
            assert_agrees(model, {"x": floats(size), "c": np.array(condition), "s": floats(1)}, session)


def test_forgotten_shapes_are_compiled_again() -> None:
    session = InferenceSession(PRODUCT)
    for rows in (*range(1, 41), 1):
        assert session.run(None, {"x": np.ones((rows, 40), np.float32)})[0].shape == (rows, 24)


def test_a_shape_in_use_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[int | str | None, ...]] = []
    compile_ = JustInTimeCompiler.compile

    def watched(self: JustInTimeCompiler, specs: Sequence[TensorSpec], fed: Sequence[TensorSpec] = ()) -> Ready:
        compiled.append(specs[0].shape)
        return compile_(self, specs, fed)

    monkeypatch.setattr(JustInTimeCompiler, "compile", watched)
    every_shape = SessionOptions(switched_off=frozenset({"open sizes"}))
    session = InferenceSession(parse("g (float[n] x) => (float[n] y) { y = Neg(x) }"), every_shape)
    for size in range(1, 75):
        session.run(None, {"x": floats(size)})
        session.run(None, {"x": floats(1)})
    assert compiled.count((1,)) == 1
    session.run(None, {"x": floats(2)})
    assert compiled.count((2,)) == 2


def test_threads_with_different_shapes_do_not_disturb_each_other() -> None:
    session = InferenceSession(PRODUCT, num_threads=2)
    weights = onnx.numpy_helper.to_array(PRODUCT.graph.initializer[0])

    def work(seed: int) -> float:
        worst = 0.0
        for n in range(30):
            x = floats(1 + (seed * 7 + n) % 9, 40, seed=seed * 100 + n)
            (y,) = session.run(None, {"x": x})
            worst = max(worst, float(np.abs(y - np.maximum(x @ weights, 0)).max()))
        return worst

    with ThreadPoolExecutor(6) as pool:
        assert max(pool.map(work, range(6))) < 1e-4


# ---- control flow and shapes that depend on data
LOOP = """g (int64 n, float[2] x) => (float[2] last, float[K,2] all) <bool yes = {1}> {
    last, all = Loop (n, yes, x) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] next, float[2] out) {
        f = Cast<to=1>(i) next = Add(v, f) out = Mul(next, v) more = Identity(go) }> }"""
EARLY = """g (int64 n, float[2] x) => (float[2] last) <bool yes = {1}, float limit = {9.0}> {
    last = Loop (n, yes, x) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] next) {
        next = Add(v, v) s = ReduceSum<keepdims=0>(next) more = Less(s, limit) }> }"""
GROWING = """g (int64 n, float[K] x) => (float[M] y) <bool yes = {1}> {
    y = Loop (n, yes, x) <body = b (int64 i, bool go, float[P] v) => (bool more, float[Q] next) {
        next = Concat<axis=0>(v, x) more = Identity(go) }> }"""
BRANCH = """g (bool c, float[3] x) => (float[K] y) {
    y = If (c) <then_branch = t () => (float[3] a) { a = Exp(x) }, else_branch = e () => (float[6] b) { b = Concat<axis=0>(x, x) }> }"""
SCAN = """g (float[4,3] x, float[3] start) => (float[3] end, float[4,3] sums) {
    end, sums = Scan(start, x) <num_scan_inputs=1, body = b (float[3] s, float[3] v) => (float[3] t, float[3] out) {
        t = Add(s, v) out = Mul(t, t) }> }"""
SELECTED = (
    "g (float[N] x) => (int64[R,M] where, float[M] y) { z = Relu(x) where = NonZero(z) t = Transpose(where) g = GatherND(z, t) y = Exp(g) }"
)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        *((LOOP, {"n": np.array(n), "x": floats(2)}) for n in (0, 1, 5)),
        *((EARLY, {"n": np.array(n), "x": np.abs(floats(2)) + 0.1}) for n in (0, 2, 20)),
        *((GROWING, {"n": np.array(n), "x": floats(k)}) for n, k in ((0, 3), (3, 2), (2, 0))),
        *((BRANCH, {"c": np.array(c), "x": floats(3)}) for c in (True, False)),
        (SCAN, {"x": floats(4, 3), "start": floats(3, seed=1)}),
        *((SELECTED, {"x": sign * np.abs(floats(9))}) for sign in (1, -1)),
        (SELECTED, {"x": floats(9)}),
    ],
)
def test_control_flow_and_data_dependent_shapes_are_as_in_onnx_runtime(text: str, feeds: Feeds) -> None:
    assert_agrees(parse(text), feeds)


def test_a_loop_runs_from_several_threads_at_once() -> None:
    session = InferenceSession(parse(GROWING))

    def work(n: int) -> bool:
        x = floats(2, seed=n)
        return all(np.array_equal(session.run(None, {"n": np.array(k), "x": x})[0], np.tile(x, k + 1)) for k in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
