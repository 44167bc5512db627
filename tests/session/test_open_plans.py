"""Open programs as functions that are written for them: shape arithmetic, caches and views at sizes that change from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
import gc
import random
import weakref

import numpy as np
import onnx
import pytest

from anycann import InferenceSession
from anycann.runtime.open_plan import Plan
from anycann.runtime.open_sizes import OpenSizes
from anycann.runtime.plan_text import as_plain
from tests.session.models import assert_agrees, by_onnx_runtime, floats, parse

SIZES = [5, 6, 9, 1, 2, 0, 30, 29, 3, 17, 1, 64]  # of the cache


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each run of an open program was one of its function; compiling counts as slow."""
    found: list[bool] = []
    run, told = Plan.run, OpenSizes.compiled

    def noted(self: Plan, feeds: Sequence[object]) -> list[object] | None:
        results = run(self, feeds)
        found.append(results is not None)
        return results

    monkeypatch.setattr(Plan, "run", noted)
    monkeypatch.setattr(OpenSizes, "compiled", lambda self, specs, _seconds: told(self, specs, 1e9))
    return found


# A word and what came before it: k is [1, 2, 1, 4] by kernels, past [1, 2, P, 4].
HEAD = """g (float[1,1,8] x, float[1,2,P,4] past, int64[1,P] seen) => ({outputs}) {{
    h = MatMul(x, w) t = Tanh(h) r = Reshape(t, heads) k = Transpose<perm=[0,2,1,3]>(r)"""
TAILS = {
    "next": "next = Concat<axis=2>(past, k)",
    "front": "front = Concat<axis=-2>(k, past)",
    "three": "three = Concat<axis=2>(past, k, past)",
    "wide": "both = Concat<axis=2>(past, k) wide = Concat<axis=3>(both, both)",
    "words": "one = Shape<start=2,end=3>(k) ones = Expand(four, one) words = Concat<axis=-1>(seen, two_d)",
    "mask": """s = Shape(past) n = Gather(s, second) m = Add(n, unit) a = Unsqueeze(n, zero) b = Unsqueeze(m, zero)
        row = Slice(table, a, b, zero) part = Slice(row, zero, b, first) mask = Mul(part, half)""",
    "place": """sp = Shape(past) np = Gather(sp, second) ap = Unsqueeze(np, zero) mp = Add(ap, unit1)
        e = Slice(table, ap, mp, zero) place = Exp(e)""",
    "flat": "f = Concat<axis=2>(past, k) flat = Reshape(f, rows)",
    "turned": "g1 = Concat<axis=2>(past, k) turned = Transpose<perm=[0,2,1,3]>(g1)",
    "shaped": """h1 = Concat<axis=2>(past, k) h2 = Transpose<perm=[0,2,1,3]>(h1) hs = Shape(h1) hn = Gather(hs, seconds)
        ht = Concat<axis=0>(unit1, hn, minus) shaped = Reshape(h2, ht)""",
    "same": "same = Identity(k)",
    "view": "view = Transpose<perm=[0,1,3,2]>(k)",
    "attention": """keys = Concat<axis=2>(past, k) kt = Transpose<perm=[0,1,3,2]>(keys) q = MatMul(k, kt) p = Softmax(q) o = MatMul(p, keys)
        ot = Transpose<perm=[0,2,1,3]>(o) of = Reshape(ot, flat8) attention = MatMul(of, w)""",
    "sum": "total = ReduceSum(next0, axis2) sum = Add(total, k)",
    "count": "z = Size(past) zf = Cast<to=1>(z) count = Mul(k, zf)",
    "back": "last = Concat<axis=2>(past, k) back = Slice(last, minus, far, axis2)",
}
CONSTANTS = {
    "w": floats(8, 8, seed=1),
    "heads": np.array([1, 1, 2, 4]),
    "rows": np.array([-1, 4]),
    "flat8": np.array([0, 0, 8]),
    "zero": np.array([0]),
    "first": np.array([1]),
    "second": np.array(2),
    "seconds": np.array([2]),
    "axis2": np.array([2]),
    "unit": np.array(1),
    "unit1": np.array([1]),
    "minus": np.array([-1]),
    "far": np.array([2**62]),
    "four": np.array([[4.0]], np.float32),
    "two_d": np.array([[7, 8]]),
    "half": np.array(0.5, np.float32),
    "table": floats(80, 80, seed=2),
}


def model_of(chosen: Sequence[str]) -> onnx.ModelProto:
    lines = ["next0 = Concat<axis=2>(past, k)", *(TAILS[name] for name in chosen)]
    outputs = ", ".join(f"{'int64' if name == 'words' else 'float'}[{name}_sizes] {name}" for name in chosen)
    text = f"{HEAD.format(outputs=outputs)} {' '.join(lines)} }}"
    ranks = {"words": 2, "mask": 2, "place": 2, "flat": 2, "shaped": 3, "attention": 3}
    for name in chosen:
        text = text.replace(f"{name}_sizes", ",".join(f"{name}{axis}" for axis in range(ranks.get(name, 4))))
    return parse(
        text,
        **{name: value for name, value in CONSTANTS.items() if name in text.replace("(", " ").replace(",", " ").replace(")", " ").split()},
    )


def feeds_of(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    seen = np.arange(size)[None]
    return {"x": floats(1, 1, 8, seed=size + seed), "past": floats(1, 2, size, 4, seed=100 + size + seed), "seen": seen}


@pytest.mark.parametrize("name", sorted(TAILS))
def test_each_way_of_using_a_cache_agrees_with_onnx_runtime(name: str, planned: list[bool]) -> None:
    model = model_of([name])
    session = InferenceSession(model)
    for size in SIZES:
        assert_agrees(model, feeds_of(size), session)
    assert sum(planned) >= len(SIZES) - 4


@pytest.mark.parametrize("seed", range(12))
def test_random_uses_of_a_cache_agree_with_onnx_runtime(seed: int, planned: list[bool]) -> None:
    choose = random.Random(seed)
    model = model_of(choose.sample(sorted(TAILS), 5))
    session = InferenceSession(model, num_threads=1 + seed % 2)
    for size in SIZES:
        assert_agrees(model, feeds_of(size, seed), session)
    assert sum(planned) >= len(SIZES) - 5


def test_feeds_that_lie_otherwise_are_read_as_they_are(planned: list[bool]) -> None:
    model = model_of(["next", "attention"])
    session = InferenceSession(model)
    for size in SIZES:
        feeds = feeds_of(size)
        feeds["past"] = np.ascontiguousarray(feeds["past"].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        feeds["x"] = np.repeat(feeds["x"], 2, -1)[..., ::2]
        assert_agrees(model, feeds, session)


def test_results_stay_as_they_are_in_later_runs(planned: list[bool]) -> None:
    session = InferenceSession(model_of(["same", "view", "next", "turned", "attention"]))
    kept, copies = [], []
    for size in SIZES:
        feeds = feeds_of(size)
        results = session.run(None, feeds)
        copies.append([result.copy() for result in results])
        kept.append(results)
        assert all(result.flags.writeable and result.flags.c_contiguous for result in results)
        assert not any(np.shares_memory(a, b) for a in results for b in (*results, *feeds.values()) if a is not b)
    for results, copied in zip(kept, copies, strict=True):
        for result, copy in zip(results, copied, strict=True):
            np.testing.assert_array_equal(result, copy)
    assert any(planned)


def test_threads_that_run_it_at_once_do_not_disturb_each_other(planned: list[bool]) -> None:
    model = model_of(["next", "attention", "same", "mask"])
    session = InferenceSession(model, num_threads=2)
    feeds = [feeds_of(size, number) for number in range(4) for size in SIZES]
    wanted = [by_onnx_runtime(model, each) for each in feeds]
    session.run(None, feeds[0])

    def work(first: int) -> float:
        order = [*range(first, len(feeds)), *range(first)]
        runs = [zip(session.run(None, feeds[number]), wanted[number], strict=True) for number in order]
        return max(float(np.abs(got - want).max(initial=0)) for pairs in runs for got, want in pairs)

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, (0, 13, 26, 39))) < 1e-4
    assert any(planned)


def test_slices_behind_the_end_are_what_is_left(planned: list[bool]) -> None:
    model = model_of(["mask"])
    session = InferenceSession(model)
    for size in (5, 6, 79, 7, 78):
        assert_agrees(model, feeds_of(size), session)
    for size in (80, 90, 8):
        assert_agrees(model, feeds_of(size), session)


@pytest.mark.parametrize("view", ["Squeeze(s, none)", "Unsqueeze(s, none)", "Transpose(s)"])
def test_views_of_scalars_that_move(view: str, planned: list[bool]) -> None:
    model = parse(
        f"g (float[N,4] x) => (float[N,4] y) {{ s = Size(x) t = {view} f = Cast<to=1>(t) y = Add(x, f) }}",
        none=np.zeros(0, np.int64),
    )
    session = InferenceSession(model)
    for size in SIZES:
        feeds = {"x": floats(size, 4)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], feeds["x"] + np.float32(4 * size))
    assert any(planned)


def test_attention_of_kernels_that_give_no_rows() -> None:
    model = parse(
        """g (float[1,2,0,8] x, float[1,2,P,8] k, float[1,2,P,8] v) => (float[1,2,0,8] y)
        { q = MatMul(x, w) t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v) }""",
        w=floats(8, 8),
    )
    session = InferenceSession(model)
    for size in (4, 5, 6, 7):
        feeds = {"x": floats(1, 2, 0, 8), "k": floats(1, 2, size, 8), "v": floats(1, 2, size, 8)}
        assert session.run(None, feeds)[0].shape == (1, 2, 0, 8)


def test_what_kernels_read_as_it_lies_is_aligned() -> None:
    unaligned = np.zeros(33, np.uint8)[1:].view(np.float32)
    assert not unaligned.flags.aligned
    read = as_plain(unaligned)
    assert read.flags.aligned
    assert read.flags.c_contiguous
    assert as_plain(read) is read


def test_a_session_that_is_gone_leaves_nothing_for_the_collector() -> None:
    session = InferenceSession(parse("g (float[N,64] x) => (float[N,64] y) { p = MatMul(x, w) y = Relu(p) }", w=floats(64, 64)))
    for rows in (5, 6, 9, 11):
        session.run(None, {"x": floats(rows, 64)})
    assert session._programs._open_sizes is not None
    parts = [weakref.ref(part) for program in session._programs._open_sizes.programs() for part in program.parts]
    gc.collect()
    gc.disable()
    try:
        del session
        assert parts
        assert not any(part() for part in parts)
    finally:
        gc.enable()


def test_attention_reads_a_view_that_was_copied_because_it_leaves(planned: list[bool]) -> None:
    model = parse(
        """g (float[2,2,P,8] past) => (float[a,b,c,d] v, float[e,f,g,h] y)
        { k, v = Split<axis=-1, num_outputs=2>(past) t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(k, t) p = Softmax(s) y = MatMul(p, v) }"""
    )
    session = InferenceSession(model)
    for size in SIZES:
        assert_agrees(model, {"past": floats(2, 2, size, 8, seed=size)}, session)
    assert any(planned)
