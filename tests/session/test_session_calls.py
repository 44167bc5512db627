"""Call after call of one session: what one call has shown to be right is not taken for the next, and branches change as they like."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import gc
from pathlib import Path
from typing import Any
import weakref

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.support.errors import UsageError
from tests.session.models import offline, parse

SUM = parse("g (float[2,3] x, float[2,3] y) => (float[2,3] z) { d = Add(x, x) z = Add(d, y) }")
X = np.arange(6, dtype=np.float32).reshape(2, 3)
RIGHT = {"x": X, "y": X + 1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": X}, "input 'y' is missing"),
        ([X, X], "the feeds are a list; accepted: a dictionary of x, y"),
        ({"x": X, "z": X}, "input 'z' is unknown"),
        ({**RIGHT, "w": X}, "input 'w' is unknown"),
        ({"x": X, "y": None}, "input 'y' is None"),
        ({"x": X, "y": X.astype(np.int32)}, "input 'y' has dtype int32"),
        ({"x": X, "y": X.astype(">f4")}, "input 'y' has dtype >f4"),
        ({"x": X.T, "y": X}, r"input 'x' has shape \[3, 2\]"),
        ({"x": X[None], "y": X}, r"input 'x' has shape \[1, 2, 3\]"),
        ({"x": X, "y": np.float32(1)}, r"input 'y' has shape \[\]"),
    ],
)
def test_a_wrong_feed_is_refused_after_right_ones_too(wrong: Any, message: str) -> None:
    session = InferenceSession(SUM)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, RIGHT)[0], 3 * X + 1)
        with pytest.raises(UsageError, match=message):
            session.run(None, wrong)


@pytest.mark.parametrize("threads", ["a", 1.5, -1])
def test_a_number_of_threads_that_is_none_is_refused(threads: Any) -> None:
    with pytest.raises(UsageError, match=f"{threads}.*; accepted: .*1"):
        InferenceSession(SUM, num_threads=threads)


MEMORY: dict[str, Callable[[np.ndarray], Any]] = {
    "as it is": lambda x: x,
    "columns": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1, count=x.size).reshape(x.shape),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "list": lambda x: [[np.float32(v) for v in row] for row in x],
    "matrix": lambda x: x.view(np.matrix),
    "masked": lambda x: np.ma.masked_array(x),
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("make", MEMORY.values(), ids=MEMORY)
def test_feeds_may_lie_in_memory_in_another_way_at_every_call(make: Callable[[np.ndarray], Any]) -> None:
    session = InferenceSession(SUM, SessionOptions(poison=True))
    for number in range(3):
        x = X + number
        given = make(x)
        np.testing.assert_array_equal(session.run(None, {"x": given, "y": x})[0], 2 * np.asarray(given) + x)
        np.testing.assert_array_equal(session.run(None, {"x": x, "y": x})[0], 3 * x)


def test_an_optional_input_in_another_byte_order_is_read_right_at_every_call() -> None:
    doubled = [onnx.helper.make_node("OptionalGetElement", ["x"], ["v"]), onnx.helper.make_node("Add", ["v", "v"], ["y"])]
    optional = onnx.helper.make_optional_type_proto(onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [3]))
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])
    graph = onnx.helper.make_graph(doubled, "g", [onnx.helper.make_value_info("x", optional)], [output])
    session = InferenceSession(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10))
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": np.array([1, 2, 3], ">f4")})[0], [2, 4, 6])


# ---- branches
SAME_TYPES = """g (float[3,5] x, bool c, bool d) => (float[3,5] y, float[3,5] z) { u = Exp(x)
    y, v = If(c) <then_branch = t () => (float[3,5] a, float[3,5] b) { a = Add(x, u)
        b = If(d) <then_branch = tt () => (float[3,5] p) { q = Neg(a) p = Tanh(q) },
                   else_branch = te () => (float[3,5] r) { r = Identity(u) }> },
      else_branch = e () => (float[3,5] f, float[3,5] h) { f = Identity(x) h = Sub(x, u) }>
    z = Mul(v, y) }"""
OTHER_SHAPES = """g (float[3,5] x, bool c, bool d) => (float[N,M] y, float s) {
    v = If(c) <then_branch = t () => (float[5,3] a) { a = Transpose(x) },
      else_branch = e () => (float[N,M] b) { b = If(d) <then_branch = et () => (float[3,10] p) { p = Concat<axis=1>(x, x) },
                                                       else_branch = ee () => (float[3,5] q) { q = Neg(x) }> }>
    y = Exp(v) s = ReduceSum<keepdims=0>(y) }"""
WITH_HOST_NODES = """g (float[3,5] x, bool c, bool d) => (int64[2,N] y, float[3,5] z) {
    y, z = If(c) <then_branch = t () => (int64[2,N] a, float[3,5] b) { a = NonZero(x) b = Neg(x) },
      else_branch = e () => (int64[2,1] p, float[3,5] q) {
        k = Constant<value_ints=[1, 2]>() o = Constant<value_ints=[2, 1]>() p = Reshape(k, o)
        q = If(d) <then_branch = et () => (float[3,5] r) { r = Exp(x) }, else_branch = ee () => (float[3,5] m) { m = Identity(x) }> }> }"""
BRANCHES = {"same types": SAME_TYPES, "other shapes": OTHER_SHAPES, "host nodes": WITH_HOST_NODES}


def check_calls(session: InferenceSession, model: onnx.ModelProto, seed: int, calls: int) -> None:
    rng = np.random.default_rng(seed)
    reference = ReferenceEvaluator(model)
    for _ in range(calls):
        c, d = rng.integers(0, 2, 2).astype(bool)
        feeds = {"x": rng.standard_normal((3, 5)).astype(np.float32), "c": np.array(c), "d": np.array(d)}
        for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)  # type: ignore[union-attr]
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["onnx", "om"])
@pytest.mark.parametrize("text", BRANCHES.values(), ids=BRANCHES)
def test_branches_change_from_call_to_call(text: str, kind: str, tmp_path: Path) -> None:
    model = parse(text)
    session = offline(model, tmp_path) if kind == "om" else InferenceSession(model, SessionOptions(poison=True))
    check_calls(session, model, seed=0, calls=30)


def test_sessions_and_threads_take_different_branches_at_once() -> None:
    model = parse(SAME_TYPES)
    sessions = [InferenceSession(model, num_threads=threads) for threads in (1, 2)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: check_calls(sessions[seed % 2], model, seed, 20), range(6)))


@pytest.mark.parametrize("kind", ["onnx", "om"])
def test_a_session_that_nobody_holds_is_gone_at_once(kind: str, tmp_path: Path) -> None:
    """With its memory, and not when cycles are next looked for: also after regions were compiled and linked."""
    model = parse(OTHER_SHAPES)
    gc.collect()
    gc.disable()
    try:
        session = offline(model, tmp_path) if kind == "om" else InferenceSession(model)
        check_calls(session, model, seed=1, calls=12)
        programs = session._programs
        kept = [session, programs, programs._region_cache, *(loaded.executable for loaded in programs._programs.values())]
        kept.append(programs._offline if kind == "om" else programs._compiler.constants.block)  # type: ignore[arg-type]
        watched = [weakref.ref(one) for one in kept]
        del session, programs, kept
        assert [one() for one in watched] == [None] * len(watched)
    finally:
        gc.enable()
