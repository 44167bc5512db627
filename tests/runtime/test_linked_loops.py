"""Loops and scans whose turns are rows of one native call: what they compute, and when the steps run them instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import secrets
import threading
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from anycann.runtime import link_loops
from anycann.runtime.regions import run_region_step
from anycann.session import InferenceSession, SessionOptions
from tests.passes.graphs import Arrays, assert_same, by_definition, floats, parse

W = floats(5, 5) / 3
CONSTANTS = {"w": W, "yes": np.array(True), "one": np.array(1), "none": np.array(0)}
TURN = "p = MatMul(h, w) h2 = Tanh(p)"


class Steps:
    """Counts the regions that are run by steps, not by rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count = 0

        def counted(*given: object) -> list[object]:
            self.count += 1
            return run_region_step(*given)  # type: ignore[arg-type]

        monkeypatch.setattr("anycann.runtime.steps.run_region_step", counted)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def results(model: onnx.ModelProto, feeds: Sequence[Arrays], threads: int = 1) -> list[list[np.ndarray]]:
    """Of each feed what one session in poisoned memory gives after it has met them all twice."""
    session = InferenceSession(model, SessionOptions(poison=True, num_threads=threads))
    for each in (*feeds, *feeds):
        session.run(None, each)
    return [[np.asarray(result) for result in session.run(None, each)] for each in feeds]


def native(model: onnx.ModelProto, feeds: Sequence[Arrays], steps: Steps, threads: int = 1) -> list[list[np.ndarray]]:
    """As `results`; asserts that the last run of each is one call."""
    session = InferenceSession(model, SessionOptions(poison=True, num_threads=threads))
    for each in (*feeds, *feeds):
        session.run(None, each)
    before = steps.count
    found = [[np.asarray(result) for result in session.run(None, each)] for each in feeds]
    assert steps.count == before
    return found


def check(model: onnx.ModelProto, feeds: Sequence[Arrays], steps: Steps, threads: int = 1) -> None:
    for got, each in zip(native(model, feeds, steps, threads), feeds, strict=True):
        assert_same(got, by_definition(model, each))


def counted(body: str, results: str, inputs: str = "", carried: str = "x", **constants: np.ndarray) -> onnx.ModelProto:
    return parse(f"g (int64 n, float[1,5] x{inputs}) => ({results}) {{ {body.replace('FIRST', carried)} }}", **CONSTANTS, **constants)


LOOP = "y = Loop <body = b (int64 i, bool c, float[1,5] h) => (bool c2, float[1,5] h2) { c2 = Identity(c) BODY }> (n, yes, FIRST)"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_counted_loop_is_one_call_for_any_count_also_none(steps: Steps, threads: int) -> None:
    model = counted(LOOP.replace("BODY", TURN), "float[1,5] y")
    check(model, [{"n": np.array(n), "x": floats(1, 5, seed=n + 9)} for n in (3, 0, 1, 17, -2)], steps, threads)


def test_a_turn_may_use_its_number_and_what_is_outside(steps: Steps) -> None:
    body = "g2 = Gather<axis=0>(rows, i) p = MatMul(h, w) h2 = Add(p, g2)"
    model = counted(LOOP.replace("BODY", body), "float[1,5] y", ", float[9,5] rows")
    check(model, [{"n": np.array(n), "x": floats(1, 5), "rows": floats(9, 5, seed=n)} for n in (9, 4)], steps)


def test_values_that_change_places_are_handed_on_together(steps: Steps) -> None:
    body = "a2 = Identity(q) q2 = Add(a, q) c2 = Identity(c)"
    loop = f"y, z = Loop <body = b (int64 i, bool c, float[1,5] a, float[1,5] q) => (bool c2, float[1,5] a2, float[1,5] q2) {{ {body} }}>"
    model = counted(f"{loop} (n, , x, other)", "float[1,5] y, float[1,5] z", ", float[1,5] other")
    feeds = [{"n": np.array(n), "x": floats(1, 5), "other": floats(1, 5, seed=1)} for n in (6, 1, 0)]
    for got, each in zip(native(model, feeds, steps), feeds, strict=True):
        a, b = each["x"], each["other"]
        for _ in range(int(each["n"])):
            a, b = b, a + b
        assert_same(got, [a, b])


WHILE = """y, k2 = Loop <body = b (int64 i, bool c, float[1,5] h, int64 k) => (bool c2, float[1,5] h2, int64 k1)
 { p = MatMul(h, w) h2 = Tanh(p) k1 = Add(k, one) c2 = Less(k1, n) }> (, first, x, none)"""


def test_a_condition_ends_a_loop(steps: Steps) -> None:
    model = counted(WHILE, "float[1,5] y, int64 k2", ", bool first")
    feeds = [{"n": np.array(n), "x": floats(1, 5), "first": np.array(first)} for n, first in ((4, True), (1, True), (7, False), (30, True))]
    for (y, k), each in zip(native(model, feeds, steps), feeds, strict=True):
        want, turns = each["x"], max(1, int(each["n"])) if each["first"] else 0
        for _ in range(turns):
            want = np.tanh(want @ W)
        assert_same([y, k], [want, np.array(turns)])


SCANNED = """y, ys = Loop <body = b (int64 i, bool c, float[1,5] h) => (bool c2, float[1,5] h2, float[1,5] s)
 { p = MatMul(h, w) h2 = Tanh(p) s = Neg(h2) k = Add(i, one) c2 = Less(k, n) }> (six, yes, x)"""


def stacked(x: np.ndarray, count: int) -> list[np.ndarray]:
    """What SCANNED gives after so many turns."""
    states = [x]
    for _ in range(count):
        states.append(np.tanh(states[-1] @ W))
    return [states[-1], -np.array(states[1:])]


def test_a_loop_of_known_count_stacks_what_its_turns_give(steps: Steps) -> None:
    model = counted(SCANNED, "float[1,5] y, float[N,1,5] ys", six=np.array(6))
    feeds = [{"n": np.array(n), "x": floats(1, 5, seed=n)} for n in (6, 9)]
    for got, each in zip(native(model, feeds, steps), feeds, strict=True):
        assert_same(got, stacked(each["x"], 6))


def test_a_loop_that_ends_before_its_count_stacks_only_what_there_was() -> None:
    model = counted(SCANNED, "float[1,5] y, float[N,1,5] ys", six=np.array(6))
    feeds = [{"n": np.array(n), "x": floats(1, 5, seed=n)} for n in (6, 2, 9, 5, 1)]
    for got, each in zip(results(model, feeds), feeds, strict=True):
        assert_same(got, stacked(each["x"], min(6, int(each["n"]))))


def test_a_loop_that_stacks_for_a_count_of_the_caller_is_run_by_steps() -> None:
    model = counted(SCANNED.replace("six", "n"), "float[1,5] y, float[N,1,5] ys")
    feeds = [{"n": np.array(n), "x": floats(1, 5, seed=n)} for n in (3, 1, 5)]
    for got, each in zip(results(model, feeds), feeds, strict=True):
        assert_same(got, stacked(each["x"], int(each["n"])))


SCAN = """y, ys, zs = Scan <num_scan_inputs=2, scan_input_directions=[DIRECTIONS], scan_output_directions=[OUTPUTS],
 body = b (float[5] h, float[5] u, float[] v) => (float[5] h2, float[5] s, float[] z)
 { m = MatMul(h, w) a = Add(m, u) h2 = Tanh(a) s = Neg(h2) z = Abs(v) }> (x, us, vs)"""


@pytest.mark.parametrize("directions", [(0, 0, 0, 0), (1, 0, 0, 1), (1, 1, 1, 1)])
def test_a_scan_is_one_call_in_any_direction(steps: Steps, directions: tuple[int, ...]) -> None:
    text = SCAN.replace("DIRECTIONS", "{}, {}".format(*directions)).replace("OUTPUTS", "{}, {}".format(*directions[2:]))
    model = parse(f"g (float[5] x, float[7,5] us, float[7] vs) => (float[5] y, float[7,5] ys, float[7] zs) {{ {text} }}", **CONSTANTS)
    feeds: dict[str, np.ndarray] = {"x": floats(5), "us": floats(7, 5, seed=1), "vs": floats(7, seed=2)}
    ((y, ys, zs),) = native(model, [feeds], steps)
    state, made = feeds["x"], []
    for u in feeds["us"][:: -1 if directions[0] else 1]:
        state = np.tanh(state @ W + u)
        made.append(-state)
    turned = np.abs(feeds["vs"][:: -1 if directions[1] else 1])
    assert_same([y, ys, zs], [state, np.array(made[:: -1 if directions[2] else 1]), turned[:: -1 if directions[3] else 1]])


def test_a_scan_of_nothing_gives_its_state_and_nothing(steps: Steps) -> None:
    text = SCAN.replace("DIRECTIONS", "0, 0").replace("OUTPUTS", "0, 0")
    model = parse(f"g (float[5] x, float[0,5] us, float[0] vs) => (float[5] y, float[0,5] ys, float[0] zs) {{ {text} }}", **CONSTANTS)
    feeds = {"x": floats(5), "us": floats(0, 5), "vs": floats(0)}
    for got in results(model, [feeds]):
        assert_same(got, [feeds["x"], feeds["us"], feeds["vs"]])


def test_a_scan_along_another_axis_is_run_by_steps() -> None:
    text = """y, ys = Scan <num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
     body = b (float[5] h, float[5] u) => (float[5] h2, float[5] s) { h2 = Add(h, u) s = Neg(h2) }> (x, us)"""
    model = parse(f"g (float[5] x, float[5,7] us) => (float[5] y, float[5,7] ys) {{ {text} }}")
    feeds = {"x": floats(5), "us": floats(5, 7)}
    sums = feeds["x"][:, None] + np.cumsum(feeds["us"], axis=1)
    for got in results(model, [feeds]):
        assert_same(got, [sums[:, -1], -sums])


NESTED = """y = Loop <body = b (int64 i, bool c, float[1,5] h) => (bool c2, float[1,5] h2) { c2 = Identity(c)
 odd = Mod(i, two) is = Cast<to=9>(odd)
 q = Loop <body = d (int64 j, bool e, float[1,5] g) => (bool e2, float[1,5] g2)
  { e2 = Identity(e) p = MatMul(g, w) g2 = Tanh(p) }> (i, yes, h)
 h2 = If (is) <then_branch = t () => (float[1,5] r) { r = Neg(q) },
  else_branch = f () => (float[1,5] s) { s = Add(q, x) }> }> (n, yes, x)"""


def test_a_loop_and_an_if_within_a_loop_are_one_call(steps: Steps) -> None:
    model = counted(NESTED, "float[1,5] y", two=np.array(2))
    check(model, [{"n": np.array(n), "x": floats(1, 5, seed=n)} for n in (5, 8)], steps)


def test_a_loop_whose_values_grow_is_run_by_steps() -> None:
    grown = LOOP.replace("float[1,5] h)", "float[A,5] h)").replace("float[1,5] h2", "float[B,5] h2")
    model = counted(grown.replace("BODY", "h2 = Concat<axis=0>(h, x)"), "float[C,5] y")
    for turns, got in zip((3, 1), results(model, [{"n": np.array(n), "x": floats(1, 5)} for n in (3, 1)]), strict=True):
        assert_same(got, [np.tile(floats(1, 5), (turns + 1, 1))])


def test_a_loop_behind_kernels_feeds_kernels(steps: Steps) -> None:
    body = f"x1 = Exp(x) {LOOP.replace('BODY', TURN)} z = Neg(y)"
    feeds: list[Mapping[str, np.ndarray]] = [{"n": np.array(4), "x": floats(1, 5)}, {"n": np.array(0), "x": floats(1, 5, seed=3)}]
    check(counted(body, "float[1,5] z", carried="x1"), feeds, steps)


def test_a_loop_of_boundless_count_may_stack_parts_of_no_byte() -> None:
    body = "h2 = Neg(h) s = Identity(h2) c2 = Less(i, one)"
    loop = f"y, ys = Loop <body = b (int64 i, bool c, float[0] h) => (bool c2, float[0] h2, float[0] s) {{ {body} }}> (most, yes, x)"
    model = parse(f"g (float[0] x) => (float[0] y, float[N,0] ys) {{ {loop} }}", **CONSTANTS, most=np.array(np.iinfo(np.int64).max))
    for got in results(model, [{"x": floats(0)}]):
        assert_same(got, [floats(0), floats(2, 0)])


def test_threads_that_come_with_the_same_new_number_get_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def array(value: int, dtype: str) -> np.ndarray:
        both.wait(60)
        return np.array(value, dtype)

    monkeypatch.setattr(link_loops, "np", SimpleNamespace(array=array))
    with ThreadPoolExecutor(2) as beside:
        first, second = beside.map(link_loops.number, [secrets.randbits(62)] * 2)
    assert first == second
