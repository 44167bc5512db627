"""Sessions whose feeds change their sizes from call to call: a program for open sizes runs what comes once, with the same results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import time
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from anycann import InferenceSession, SessionOptions
from anycann.just_in_time import JustInTimeCompiler, Ready
from anycann.om.plan import TensorSpec
from anycann.runtime.open_program import OpenProgram
from anycann.runtime.open_sizes import PROGRAMS_KEPT, OpenSizes
from tests.session.models import assert_agrees, by_onnx_runtime, floats, offline, parse

LAYERS, WIDTH, HEADS, WORDS = 2, 32, 4, 50


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TensorSpec, ...]]:
    """The input types of every program that is compiled; compiling counts as slow, however busy this machine is."""
    found: list[tuple[TensorSpec, ...]] = []
    compile_ = JustInTimeCompiler.compile

    def watched(self: JustInTimeCompiler, specs: Sequence[TensorSpec], fed: Sequence[TensorSpec] = ()) -> Ready:
        found.append(tuple(specs))
        return compile_(self, specs, fed)

    monkeypatch.setattr(JustInTimeCompiler, "compile", watched)
    told = OpenSizes.compiled
    monkeypatch.setattr(OpenSizes, "compiled", lambda self, specs, _seconds: told(self, specs, 1e9))
    return found


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, past: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, length = x.shape[:2]
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.three(self.before(x)).split(WIDTH, 2))
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        weights = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + mask).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh")), k, v


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, ids: torch.Tensor, seen: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before, now = past[0].shape[2], ids.shape[1]
        places = (seen.cumsum(-1) - 1)[:, before:]
        x = self.words(ids) + self.places(places)
        mask = torch.ones(64, 64).triu(1)[before : before + now, : before + now] * -1e9
        kept = []
        for number, block in enumerate(self.blocks):
            x, k, v = block(x, mask, past[2 * number : 2 * number + 2])
            kept += [k, v]
        return x @ self.words.weight.T, *kept


PASTS = [f"past.{number}" for number in range(2 * LAYERS)]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    torch.manual_seed(0)
    path = str(tmp_path_factory.mktemp("decoder") / "decoder.onnx")
    past = [torch.zeros(1, HEADS, 5, WIDTH // HEADS)] * len(PASTS)
    axes = {"ids": {1: "now"}, "seen": {1: "all"}} | {name: {2: "before"} for name in PASTS}
    outputs = ["logits", *(f"next.{name}" for name in PASTS)]
    feeds = (torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 8, dtype=torch.long), *past)
    names = {"input_names": ["ids", "seen", *PASTS], "output_names": outputs, "dynamic_axes": axes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this way to export is deprecated; any test may come first
        torch.onnx.export(Decoder().eval(), feeds, path, dynamo=False, opset_version=17, **names)
    return onnx.load(path)


def steps(tokens: int, prompt: int = 4) -> Iterator[dict[str, np.ndarray]]:
    """What a loop feeds that generates: the prompt, then one token after the other; caches are random."""
    for number in range(tokens):
        before, now = (0, prompt) if number == 0 else (prompt + number - 1, 1)
        past = {name: floats(1, HEADS, before, WIDTH // HEADS, seed=k) for k, name in enumerate(PASTS)}
        ids = np.random.default_rng(number).integers(0, WORDS, (1, now))
        yield {"ids": ids, "seen": np.ones((1, before + now), np.int64), **past}


@pytest.mark.parametrize("kind", ["onnx", "om"])
def test_a_decoder_compiles_no_program_for_each_token(
    decoder: onnx.ModelProto, compiled: list[tuple[TensorSpec, ...]], kind: str, tmp_path: Path
) -> None:
    session = InferenceSession(decoder) if kind == "onnx" else offline(decoder, tmp_path)
    for feeds in steps(12):
        assert_agrees(decoder, feeds, session)
    assert len(compiled) <= 2
    assert any(report.reason.startswith("its sizes change") for report in session.engines())


def test_a_shape_that_comes_twice_in_a_row_is_compiled(decoder: onnx.ModelProto, compiled: list[tuple[TensorSpec, ...]]) -> None:
    session = InferenceSession(decoder)
    *_, last = [(session.run(None, feeds), feeds)[1] for feeds in steps(6)]
    before = len(compiled)
    for _ in range(3):
        assert_agrees(decoder, last, session)
    assert len(compiled) == before + 1


@pytest.mark.parametrize(
    "options", [SessionOptions(poison=True), SessionOptions(switched_off=frozenset({"open sizes"}))], ids=["poison", "off"]
)
def test_every_shape_may_be_compiled(decoder: onnx.ModelProto, compiled: list[tuple[TensorSpec, ...]], options: SessionOptions) -> None:
    session = InferenceSession(decoder, options)
    for feeds in steps(3):
        session.run(None, feeds)
    assert len(compiled) == 3


def test_threads_that_generate_at_once_do_not_disturb_each_other(decoder: onnx.ModelProto) -> None:
    session = InferenceSession(decoder, num_threads=2)
    wanted = [by_onnx_runtime(decoder, feeds) for feeds in steps(8)]

    def work(_: int) -> float:
        runs = [zip(session.run(None, feeds), wants, strict=True) for feeds, wants in zip(steps(8), wanted, strict=True)]
        return max(float(np.abs(got - want).max()) for pairs in runs for got, want in pairs)

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, range(4))) < 1e-4


FIRST_FOUR = """g (float[N] past) => (float[M] y) <int64[1] zero = {0}, int64[1] four = {4}> {
    first = Slice(past, zero, four) h = Softmax(first) y = Exp(h) }"""
BY_SIZE = """g (float[3] x, float[N] past) => (float[3] y, float[N] z) <int64[1] four = {4}> {
    n = Shape(past) q = Div(n, four) f = Cast<to=1>(q) e = Exp(x) y = Mul(e, f) z = Mul(past, f) }"""
SIZE_OF_FIRST_FOUR = """g (float[N] past, float[3] x) => (float[3] y, float[M] ones, float[N] z) <
    int64[1] zero = {0}, int64[1] four = {4}, float one = {1}> {
    first = Slice(past, zero, four) n = Shape(first) ones = Expand(one, n) s = Size(first) f = Cast<to=1>(s) e = Exp(x) y = Mul(e, f)
    z = Softmax(past) }"""


@pytest.mark.parametrize("sizes", [(6, 5, 4, 9), (6, 7, 5, 3), (7, 6, 5, 8), (4, 5, 0, 6)], ids=str)
def test_nothing_is_concluded_from_two_sizes_for_a_third_one(sizes: Sequence[int]) -> None:
    model, session = parse(BY_SIZE), InferenceSession(parse(BY_SIZE))
    for size in sizes:
        assert_agrees(model, {"x": floats(3), "past": floats(size)}, session)


def test_what_is_known_from_sizes_that_stayed_is_not_known_for_others() -> None:
    model, session = parse(SIZE_OF_FIRST_FOUR), InferenceSession(parse(SIZE_OF_FIRST_FOUR))
    for size in (9, 8, 3, 7, 0, 2):
        assert_agrees(model, {"past": floats(size), "x": floats(3)}, session)


def test_kernels_do_not_run_on_what_has_another_size_than_they_were_made_for(compiled: list[tuple[TensorSpec, ...]]) -> None:
    session = InferenceSession(parse(FIRST_FOUR))
    for size in (9, 8, 7, 3, 4, 0, 6):
        assert_agrees(parse(FIRST_FOUR), {"past": floats(size)}, session)
    assert [spec.shape for (spec,) in compiled] == [(9,), (3,), (0,)]


def test_an_encoder_of_which_everything_moves_compiles_no_program_for_each_length(compiled: list[tuple[TensorSpec, ...]]) -> None:
    text = """g (float[N,L,8] x) => (float[N,L,8] y) { n = LayerNormalization(x, scale) q = MatMul(n, w) k = Transpose<perm=[0,2,1]>(q)
        s = MatMul(q, k) p = Softmax(s) a = MatMul(p, q) r = Add(a, x) d = Div(r, root) e = Erf(d) f = Add(e, one) y = Mul(f, r) }"""
    model = parse(text, scale=floats(8), w=floats(8, 8), root=np.float32(2**0.5), one=np.float32(1))
    session = InferenceSession(model)
    for length in (3, 7, 1, 12, 0, 5):
        assert_agrees(model, {"x": floats(2, length, 8)}, session)
    assert len(compiled) == 1


class Slow(OpenProgram):
    """A program that takes a hundredth of a second."""

    def run(self, feeds: Sequence[object]) -> list[object] | None:
        time.sleep(0.01)
        return list(feeds)


def test_what_has_run_for_as_long_as_compiling_takes_is_compiled() -> None:
    sizes, made = OpenSizes(), Slow((), {}, {}, (), ())
    one, two, three = ((TensorSpec("x", "float32", (size,)),) for size in (1, 2, 3))
    assert sizes.run(one, [], lambda *_: made) is None
    sizes.compiled(one, 0.5)
    results = [sizes.run(specs, [0], lambda *_: made) for _ in range(60) for specs in (two, three)]
    assert results[:4] == [[0]] * 4
    assert results[-1] is None


class Making(OpenProgram):
    """A program that makes others for a tenth of a second in every run."""

    made = 0.0

    @property
    def made_seconds(self) -> float:
        return self.made

    def run(self, feeds: Sequence[object]) -> list[object] | None:
        time.sleep(0.1)
        self.made += 0.1
        return list(feeds)


def test_making_programs_for_blocks_of_rows_is_no_reason_to_compile() -> None:
    sizes, made = OpenSizes(), Making((), {}, {}, (), ())
    one, two, three = ((TensorSpec("x", "float32", (size,)),) for size in (100, 101, 102))
    sizes.compiled(one, 0.08)
    assert [sizes.run(specs, [0], lambda *_: made) for specs in (two, three)] == [[0], [0]]


def test_much_larger_sizes_are_compiled_at_once() -> None:
    sizes, made = OpenSizes(), Slow((), {}, {}, (), ())
    one, two, much = ((TensorSpec("x", "float32", (size,)),) for size in (100, 120, 4000))
    sizes.compiled(one, 0.5)
    assert sizes.run(much, [0], lambda *_: made) is None
    assert sizes.run(two, [0], lambda *_: made) == [0]
    assert sizes.run(much, [0], lambda *_: made) is None


VIEWS = """g (float[N,2] past, float[2] x) => (float[2,N] turned, float[N,2] same, float[N,2] again, float[2] known) {
    turned = Transpose(past) same = Identity(past) again = Identity(same) known = Exp(x) }"""


def test_results_are_arrays_of_their_own() -> None:
    session = InferenceSession(parse(VIEWS))
    for size in (5, 6, 7, 8):
        past = floats(size, 2)
        kept = past.copy()
        results = session.run(None, {"past": past, "x": floats(2)})
        for result in results:
            assert result.flags.writeable
            assert result.flags.c_contiguous
            result.fill(9)
        np.testing.assert_array_equal(past, kept)
        assert not any(np.shares_memory(a, b) for a in results for b in (*results, past) if a is not b)


def test_programs_for_open_sizes_are_given_up() -> None:
    session = InferenceSession(parse("g (float[A,B] x, float[C,3] past) => (float[D,3] y) { y = MatMul(x, past) }"))
    for size in range(1, 30):
        for rows in (size, 30 - size):
            (y,) = session.run(None, {"x": np.ones((rows, size), np.float32), "past": np.ones((size, 3), np.float32)})
            np.testing.assert_array_equal(y, np.full((rows, 3), size))
    opened = session._programs._open_sizes
    assert opened is not None
    assert len(opened._open) <= PROGRAMS_KEPT
    assert len(session.engines()) <= PROGRAMS_KEPT + len(session._programs._programs)  # of one node each


@pytest.mark.parametrize("any_encoder", [True, False])
def test_what_stays_for_a_while_only_makes_no_programs_each_time(any_encoder: bool) -> None:
    sizes, made, compiled = OpenSizes(), [], []

    def make(one: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> OpenProgram | None:
        made.append((one, other))
        time.sleep(0.02)
        return OpenProgram((), {}, {}, (), ()) if any_encoder or one[0] == other[0] else None

    for sentence in range(40):
        for tokens in range(10):
            specs = (TensorSpec("encoded", "float32", (5 + sentence,)), TensorSpec("past", "float32", (tokens,)))
            if sizes.run(specs, [], make) is None:
                compiled.append(specs)
                sizes.compiled(specs, 9.0)
    if any_encoder:
        assert PROGRAMS_KEPT <= len(made) <= 12
    assert len(compiled) <= 2 * 40  # nothing but the first words of a sentence
