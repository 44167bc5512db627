"""Random attention fed with sizes that change from call to call: the kernel for any of them gives what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
import random

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.runtime import plan_calls
from anycann.runtime.open_attention import AttentionKernel, scratch_bytes
from anycann.runtime.open_sizes import OpenSizes
from tests.session.models import assert_agrees, by_onnx_runtime, floats, parse

SIZES = [(1, 1), (5, 3), (1, 9), (4, 4), (1, 10), (33, 8), (3, 70), (1, 11), (2, 0), (0, 2), (40, 41), (1, 12)]  # rows, keys of the cache
MASKS = {"N,M": (1, 1), "1,1,1,M": (0, 1), "2,1,1,M": (0, 1), "2,1,N,M": (1, 1), "1,M": (0, 1)}


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each attention was computed by the kernel; compiling counts as slow."""
    found: list[bool] = []
    run, told = AttentionKernel.run, OpenSizes.compiled

    def noted(self: AttentionKernel, operands: list[object]) -> np.ndarray | None:
        result = run(self, operands)
        found.append(result is not None)
        return result

    def noted_in_plan(length: int) -> int:
        found.append(True)
        return scratch_bytes(length)

    with monkeypatch.context() as context:
        context.setattr(plan_calls, "scratch_bytes", noted_in_plan)
        context.setattr(AttentionKernel, "run", noted)
        context.setattr(OpenSizes, "compiled", lambda self, specs, _seconds: told(self, specs, 1e9))
        yield found


class Drawn:
    """A graph of attention with a cache, and its feeds for numbers of rows and of keys that the cache has."""

    def __init__(self, choose: random.Random):
        self.rank = choose.choice([2, 3, 4, 4])
        self.depth, self.width = choose.choice([1, 3, 8, 16]), choose.choice([2, 5, 8, 24])
        self.lead = {2: [], 3: [choose.choice([1, 3])], 4: [2, choose.choice([1, 4])]}[self.rank]
        own = [choose.choice([1, size]) for size in self.lead]  # of keys, which are stretched to the queries'
        self.mask = choose.choice([None, *MASKS]) if self.rank == 4 else choose.choice([None, "N,M", "1,M"])
        self.shapes = {"q": [*self.lead, "N", self.depth], "k": [*own, "N", self.depth], "v": [*own, "N", self.width]}
        self.shapes |= {"past_k": [*own, "P", self.depth], "past_v": [*own, "P", self.width]}
        if self.mask is not None:
            self.shapes["mask"] = [size if size.isalpha() else int(size) for size in self.mask.split(",")]
        axes = [*range(self.rank - 2), self.rank - 1, self.rank - 2]
        steps = [f"keys = Concat<axis={self.rank - 2}>(past_k, k) values = Concat<axis={self.rank - 2}>(past_v, v)"]
        steps += [f"turned = Transpose<perm={axes}>(keys) s = MatMul(q, turned)"]
        scale = choose.choice(["", "d = Div(s, root)", "d = Mul(root, s)"])
        scores = "d" if scale else "s"
        masked = "" if self.mask is None else choose.choice([f"m = Add({scores}, mask)", f"m = Add(mask, {scores})"])
        softmax = f"p = Softmax<axis={choose.choice([-1, self.rank - 1])}>({'m' if masked else scores})"
        steps += [scale, masked, softmax, "r = MatMul(p, values) y = Tanh(r)"]
        typed = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in self.shapes.items())
        outs = ", ".join(f"float[{','.join(f'{name}{n}' for n in range(self.rank))}] {name}" for name in ("y", "r", "keys", "values"))
        self.model: onnx.ModelProto = parse(
            f"g ({typed}) => ({outs}) {{ {' '.join(steps)} }}", **({"root": np.array([1.7], np.float32)} if scale else {})
        )

    def feeds(self, rows: int, before: int) -> dict[str, np.ndarray]:
        sizes = {"N": rows, "P": before, "M": rows + before}
        return {
            name: floats(*(sizes.get(str(size), size) for size in shape), seed=rows + 7 * before + number)
            for number, (name, shape) in enumerate(self.shapes.items())
        }


@pytest.mark.parametrize("seed", range(12))
def test_random_attention_of_moving_sizes_agrees_with_onnx_runtime(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(random.Random(seed))
    session = InferenceSession(drawn.model, SessionOptions(num_threads=1 + seed % 2))
    with watched(monkeypatch) as by_kernel:
        for rows, before in SIZES:
            assert_agrees(drawn.model, drawn.feeds(rows, before), session)
    assert sum(by_kernel) >= len(SIZES) - 5


def test_threads_that_run_it_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(random.Random(3))
    session = InferenceSession(drawn.model, num_threads=2)
    feeds = [drawn.feeds(rows, before) for rows, before in SIZES if rows and before]
    wanted = [by_onnx_runtime(drawn.model, each) for each in feeds]
    with watched(monkeypatch):
        session.run(None, feeds[0])

        def work(first: int) -> float:
            order = [*range(first, len(feeds)), *range(first)]
            runs = [zip(session.run(None, feeds[number]), wanted[number], strict=True) for number in order]
            return max(float(np.abs(got - want).max(initial=0)) for pairs in runs for got, want in pairs)

        with ThreadPoolExecutor(4) as pool:
            assert max(pool.map(work, range(4))) < 1e-4


def test_operands_that_lie_otherwise_and_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (T[A,N,B] q, T[A,B,M] k, T[B,A,M] v) => (T[C,D,E] y) {
        a = Transpose<perm=[0,2,1]>(q) b = Transpose<perm=[0,2,1]>(k) s = MatMul(q, k) p = Softmax(s)
        w = Transpose<perm=[1,2,0]>(v) y = MatMul(p, w) }"""
    for name, kernels in (("float", True), ("double", False)):
        model, dtype = parse(text.replace("T[", f"{name}[")), np.float32 if name == "float" else np.float64
        session = InferenceSession(model)
        with watched(monkeypatch) as by_kernel:
            for rows, keys in ((3, 5), (2, 9), (4, 1), (1, 17)):
                feeds = {"q": floats(2, rows, 4), "k": floats(2, 4, keys, seed=1), "v": floats(4, 2, keys, seed=2)}
                assert_agrees(model, {key: value.astype(dtype) for key, value in feeds.items()}, session)
        assert (sum(by_kernel) > 0) == kernels
