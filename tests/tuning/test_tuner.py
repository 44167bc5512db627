"""Tuning: searches that find what is best, measuring that survives bad kernels, and interruptions that lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
import json
import math
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from anycann.codegen.kernel_cache import KernelCache
from anycann.codegen.kernels.dot_direct import gains_directly
from anycann.codegen.kernels.dot_shape import DotTile
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.nest_kernel import Output
from anycann.codegen.recipe import Recipe
from anycann.codegen.space import Choices
from anycann.support.errors import UsageError
from anycann.target.target import NAMED, host
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Convolution, MatMul
from anycann.tuning.cost_model import CostModel
from anycann.tuning.identity import key_of
from anycann.tuning.journal import Journal, Line, candidates_since_better
from anycann.tuning.measuring import Candidate, Job, Measurer, Timing
from anycann.tuning.measuring_worker import _filled
from anycann.tuning.operands import KEPT_BYTES, inputs_of, known_constants, outputs_of
from anycann.tuning.search import propose, searches
from anycann.tuning.study import Key, Study
from anycann.tuning.task import TuningTask, task_of
from anycann.tuning.tuner import Outcome, Tuner, TuningOptions, candidate_of
from tests.codegen.kernels.test_dot_convolution import sizes
from tests.tuning.cases import attention_task, convolution_task, matmul_task, nest_task


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def options(candidates: int = 8, **rest: object) -> TuningOptions:
    return TuningOptions(candidates=candidates, threads=1, workers=1, **rest)  # type: ignore[arg-type]


# ---- searching
def rugged(study: Study, key: Key) -> float:
    """A made-up time: least where the product of blocks and columns is 20 and the input is written out four times."""
    point = study.point(key)
    return 1 + abs(math.log(point["blocks"] * point["columns"] / 20)) + 0.2 * abs(point["unroll"] - 4) + 0.1 * point["merge"]


@pytest.mark.parametrize("mode", ["RL", "GA", "RL,GA"])
def test_a_search_comes_near_the_best_of_a_made_up_time_with_few_measurements(mode: str) -> None:
    study, model, rng = Study(convolution_task(channels=128, size=30, target=NAMED["avx512"])), CostModel(), random.Random(3)
    unasked = rugged(study, study.default)
    for _ in range(8):
        model.fit([study])
        for key in propose(study, model, searches(mode), 8, rng):
            assert study.estimate(key) is not None
            assert key not in study.ratios
            study.add(key, rugged(study, key) / unasked)
    assert study.best()[1] * unasked < 1.15


def test_the_cost_model_learns_what_the_estimate_does_not_know() -> None:
    study, model, rng = Study(convolution_task(channels=128, size=30, target=NAMED["avx512"])), CostModel(), random.Random(4)
    points = [k for _ in range(400) if study.estimate(k := tuple(rng.choice(p.choices) for p in study.parameters)) is not None]
    train, test = points[:40], [p for p in points[40:] if p not in points[:40]][:40]
    for key in train:
        study.add(key, rugged(study, key))
    model.fit([study])
    wrong = sum((model.predict(study, k) - math.log(rugged(study, k))) ** 2 for k in test)
    unlearned = sum((CostModel().predict(study, k) - math.log(rugged(study, k))) ** 2 for k in test)
    assert wrong < unlearned / 3


@pytest.mark.parametrize("mode", ["", "XX", "RL;GA"])
def test_a_search_that_does_not_exist_is_refused(mode: str) -> None:
    with pytest.raises(UsageError, match="accepted: RL, GA"):
        searches(mode)


# ---- measuring
def job_of(task: TuningTask, cache: KernelCache, count: int = 3) -> Job:
    """The default and other points, compiled."""
    from anycann.codegen.kernel_cache import compile_kernels

    study, rng = Study(task), random.Random(0)
    keys = [study.default, *propose(study, CostModel(), searches("GA"), count - 1, rng)]
    generated = [task.generate(study.point(key)) for key in keys]
    code = compile_kernels({g.kernel.symbol: g.kernel.ir for g in generated}, host(), 1, cache=cache)
    candidates = tuple(candidate_of(g, code) for g in generated)
    return Job(candidates, inputs_of(task.recipe, task.constants), outputs_of(task.recipe), host(), 1, rounds=3)


def test_large_weights_of_bytes_are_as_small_in_measured_kernels_as_in_the_model() -> None:
    """How bytes are multiplied depends on them: made up ones of up to 100 took another kernel than those that were trained."""
    rng, target = np.random.default_rng(), NAMED["avx2"]
    a, b = te.placeholder("a", (7, 400), dtypes.uint8), te.placeholder("b", (400, 400), dtypes.int8)
    product = te.contraction(MatMul(a, b), (7, 400), dtypes.int32)
    recipe = Recipe((Output("y", te.compute((7, 400), lambda i, j: product[i, j])),), {}, target)
    plan = DotSpace(sizes(400, 400, (7, 1)), target, magnitudes=True).plan(DotTile(5, 2, 1, 7, 1, True))
    for sigma, direct in ((25, True), (200, False)):
        trained = np.clip(rng.normal(0, sigma, (400, 400)), -127, 127).astype(np.int8)
        assert trained.nbytes > KEPT_BYTES
        task = task_of(recipe, {"b": trained}.get, Choices())
        assert task is not None
        weights = task.constants["b"].array()
        assert weights.shape == trained.shape
        assert gains_directly(plan, weights.T.reshape(400, 400, 1, 1)) == direct


@pytest.mark.parametrize(("dtype", "middle"), [("uint8", 0), ("uint8", 120), ("int8", 0), ("int8", -128)])
def test_bytes_that_are_measured_with_lie_around_the_zero_point_of_the_model(dtype: str, middle: int) -> None:
    """Which of them are multiplied as they are depends on how large they are (`dot_sorted.py`)."""
    target, type_ = NAMED["avx2"], dtypes.of(dtype)
    a, b = te.placeholder("a", (64, 400), type_), te.placeholder("b", (400, 96), dtypes.int8)
    x, w, zero = (
        te.placeholder("x", (1, 64, 20, 20), type_),
        te.placeholder("w", (96, 64, 1, 1), dtypes.int8),
        te.placeholder("z", (), type_),
    )
    product = te.contraction(MatMul(a, b, around=middle), (64, 96), dtypes.int32)
    shape = (1, 96, 20, 20)
    image = te.contraction(Convolution(x, w, (1, 1), (0, 0), (1, 1), 1, (20, 20), False, zero, None), shape, dtypes.int32)
    for sums, name, values in ((product, "a", {"b": (400, 96)}), (image, "x", {"w": (96, 64, 1, 1)})):
        known = {n: np.ones(size, np.int8) for n, size in values.items()} | {"z": np.array(middle, dtype)}
        result = te.compute(sums.shape, lambda *index, sums=sums: sums[index])
        recipe = Recipe((Output("y", result),), {}, target)
        operand = inputs_of(recipe, known_constants(recipe, known.get))[name]
        assert operand.middle == middle
        drawn = _filled(operand, 0).view(dtype)[: operand.count].astype(int)
        assert abs(np.median(drawn) - middle) <= 2
        assert 20 < np.abs(drawn - middle).max() <= 255
        assert np.abs(drawn - middle).mean() < 50


def broken(candidate: Candidate, body: str, cache: KernelCache) -> Candidate:
    """A kernel of the same name that does something else."""
    from anycann.codegen.kernel_cache import compile_kernels

    symbol = f"broken_{abs(hash(body))}"
    text = f"define void @{symbol}(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{\n{body}\n}}\n"
    return replace(candidate, symbol=symbol, code=compile_kernels({symbol: text}, host(), 1, cache=cache)[symbol])


@pytest.mark.parametrize(
    "task", [convolution_task(), convolution_task(kernel=3), matmul_task(), attention_task()], ids=lambda t: t.space.family
)
def test_every_candidate_gets_a_time(task: TuningTask, cache: KernelCache) -> None:
    with Measurer() as measurer:
        for timing in measurer.measure(job_of(task, cache)):
            assert timing.problem == ""
            assert 0 < timing.seconds < 60


def test_a_kernel_that_crashes_or_computes_something_else_loses_only_itself(cache: KernelCache) -> None:
    job = job_of(convolution_task(), cache, 4)
    first, second, third, fourth = job.candidates
    crash = broken(second, "  store volatile i32 1, ptr inttoptr (i64 8 to ptr)\n  ret void", cache)
    silent = broken(third, "  ret void", cache)
    with Measurer() as measurer:
        timings = measurer.measure(replace(job, candidates=(first, crash, silent, fourth)))
    assert "ended the process" in timings[1].problem
    assert "differ from those of the default" in timings[2].problem
    assert timings[0].seconds < 60
    assert timings[3].seconds < 60


def test_what_lies_in_lanes_beyond_the_channels_is_no_difference(cache: KernelCache) -> None:
    """19 channels: kernels that write one in all of them, and behind them what they like."""
    task = convolution_task(size=3, channels=19)
    job = job_of(task, cache, 3)
    first, second, third = job.candidates
    lanes, count = host().lanes, job.outputs["y"].count

    def writes(behind: float, in_channel: float) -> str:
        """A pixel at a time; `in_channel` is written to the last channel."""
        place = first.arguments.index("y")
        return f"""  %slot = getelementptr ptr, ptr %args, i64 {place}
  %y = load ptr, ptr %slot
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %j, %next ]
  %lane = urem i64 %i, {lanes}
  %is_last = icmp uge i64 %i, {18 // lanes * 9 * lanes}
  %is_behind = icmp uge i64 %lane, {19 % lanes}
  %is_channel = icmp eq i64 %lane, {18 % lanes}
  %there = and i1 %is_last, %is_channel
  %absent = and i1 %is_last, %is_behind
  %some = select i1 %there, float {in_channel:.1f}, float 1.0
  %value = select i1 %absent, float {behind:.1f}, float %some
  %at = getelementptr float, ptr %y, i64 %i
  store float %value, ptr %at
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, {count}
  br i1 %more, label %next, label %done
done:
  ret void"""

    candidates = (broken(first, writes(0, 1), cache), broken(second, writes(5, 1), cache), broken(third, writes(0, 2), cache))
    with Measurer() as measurer:
        timings = measurer.measure(replace(job, candidates=candidates))
    assert [timing.problem == "" for timing in timings] == [True, True, False]
    assert timings[2].problem == f"9 of {19 * 9} results differ from those of the default"


@pytest.mark.parametrize(
    ("rounds", "others", "ratio"),
    [((2, 2, 1), (2, 2, 2), 1.0), ((1, 1, 1), (1, 2, 2), 1.0), ((1, 1, 1), (2, 2, 2), 0.5), ((3, 3), (1, 1, 1), 3.0), ((), (1,), math.inf)],
    ids=["a lucky round", "unlucky rounds of the other", "twice as fast", "given up early", "lost"],
)
def test_what_happens_to_be_fast_is_no_gain(rounds: tuple[float, ...], others: tuple[float, ...], ratio: float) -> None:
    assert Timing(rounds).ratio(Timing(others)) == ratio


def test_a_kernel_that_never_ends_is_given_up(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(matmul_task(), cache)
    begin = time.monotonic()
    with Measurer() as measurer:
        measurer.measure(job)
    hang_seconds = math.ceil(10 * (time.monotonic() - begin))  # by what a process that does not hang takes here
    monkeypatch.setattr("anycann.tuning.measuring.HANG_SECONDS", hang_seconds)
    first, second, third = job.candidates
    endless = broken(second, "  br label %again\nagain:\n  store volatile i8 0, ptr %scratch\n  br label %again", cache)
    with Measurer() as measurer:
        timings = measurer.measure(replace(job, candidates=(first, endless, third)))
    assert f"more than {hang_seconds} s" in timings[1].problem
    assert timings[2].seconds < 60


# ---- tuning
def tuned(tasks: list[TuningTask], folder: Path, cache: KernelCache, **rest: object) -> list[Outcome]:
    return Tuner(tasks, options(**rest), Journal(folder / "journal"), cache).run()  # type: ignore[arg-type]


def test_tuning_never_ends_with_something_slower(tmp_path: Path, cache: KernelCache) -> None:
    for outcome in tuned([convolution_task(), matmul_task(), nest_task()], tmp_path, cache):
        assert outcome.after <= outcome.before
        assert outcome.tried > 4
        assert outcome.task.space.refusal(outcome.task.space.tile(outcome.point)) is None


def test_kernels_that_take_no_time_are_left_alone(tmp_path: Path, cache: KernelCache) -> None:
    x = te.placeholder("x", (3, 5), dtypes.float32)
    tiny = task_of(Recipe((Output("y", te.compute((3, 5), lambda i, j: x[i, j] + 1.0)),), {}, host()), lambda name: None, Choices())
    assert tiny is not None
    for outcome in tuned([tiny], tmp_path, cache, candidates=100):
        assert 0 < outcome.after <= outcome.before
        assert outcome.tried <= 8


def test_a_bad_default_is_found_out(tmp_path: Path, cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    task = convolution_task(size=40, channels=64)
    worst = task.space.tile({"columns": 1, "blocks": 1, "unroll": 1, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0})
    monkeypatch.setattr(type(task.space), "default", lambda self: worst)
    (outcome,) = tuned([task], tmp_path, cache, candidates=24)
    assert outcome.speedup > 2


def test_ratios_of_a_journal_are_taken_to_what_the_bank_knows_now(tmp_path: Path, cache: KernelCache) -> None:
    task = matmul_task()
    unasked, known = dict(task.default), {**task.default, "rows": 1}
    journal = Journal(tmp_path / "journal")
    key = key_of(task.space)
    journal.add([Line(key, unasked, 1.0, 2e-3), Line(key, known, 0.5, 2e-3), Line(key, {**known, "vectors": 1}, None, 2e-3)])
    study = Tuner([replace(task, known=known)], options(), journal, cache).studies[key]
    assert study.default == study.key(known)
    assert study.ratios == {study.key(known): 1.0, study.key(unasked): 2.0, study.key({**known, "vectors": 1}): math.inf}
    assert study.seconds == 1e-3


def test_a_second_run_goes_on_from_the_journal(tmp_path: Path, cache: KernelCache) -> None:
    tuned([matmul_task()], tmp_path, cache)
    before = len(list(Journal(tmp_path / "journal").lines()))
    with (tmp_path / "journal").open("a") as file:
        file.write('{"task": "cut off in the mid')
    (outcome,) = tuned([matmul_task()], tmp_path, cache)
    lines = list(Journal(tmp_path / "journal").lines())
    searched = [json.dumps(line.point) for line in lines[before:] if line.ratio != 1.0]
    assert outcome.tried >= 8
    assert len(searched) <= 4  # only what is confirmed


def test_the_journal_skips_damage_and_what_is_not_its_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.add([Line("a", {"x": 1}, 0.5, 1e-3)])
    with (tmp_path / "journal").open("a") as file:
        file.write('nonsense\n{"task": 3}\n[1]\n{"task": "a", "point": {"x": 2}, "ratio": "fast", "default_seconds": 1}\n{"task": "half')
    journal.add([Line("b", {"x": 3}, None, 1e-3, "it crashed")])
    assert [(line.task, line.ratio) for line in journal.lines()] == [("a", 0.5), ("b", None)]


def test_a_budget_of_seconds_is_kept(tmp_path: Path, cache: KernelCache) -> None:
    outcomes = tuned([convolution_task(size=n) for n in range(20, 60)], tmp_path, cache, candidates=100, seconds=3.0)
    assert sum(outcome.tried for outcome in outcomes) < 1000  # of 4000, each of which is measured for 0.018 s


PROGRAM = """
import sys
from pathlib import Path
from anycann.codegen.kernel_cache import KernelCache
from anycann.tuning.journal import Journal
from anycann.tuning.tuner import Tuner, TuningOptions
from tests.codegen.kernels.test_dot_convolution import sizes
from tests.tuning.cases import attention_task, convolution_task
folder = Path(sys.argv[1])
tasks = [convolution_task(size=size) for size in range(20, 40)]
found = Tuner(tasks, TuningOptions(candidates=60, threads=1, workers=1), Journal(folder / "journal"), KernelCache(folder / "kernels")).run()
print(len(found))
"""


def started(folder: Path) -> subprocess.Popen[str]:
    """A tuning in a process of its own that has measured something."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while not (folder / "journal").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = started(tmp_path)
    yield process
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def test_an_interruption_keeps_what_was_found(running: subprocess.Popen[str]) -> None:
    os.kill(running.pid, signal.SIGINT)
    text, _ = running.communicate(timeout=600)
    assert running.returncode == 0
    assert int(text) >= 1


def test_a_killed_tuning_leaves_its_measurements(running: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    known = {line.task for line in Journal(tmp_path / "journal").lines()}
    tasks = [convolution_task(size=size) for size in range(20, 40)]
    tuner = Tuner(tasks, options(), Journal(tmp_path / "journal"), KernelCache(tmp_path / "kernels"))
    assert known
    assert {key_of(outcome.task.space) for outcome in tuner.outcomes()} == known


def test_the_journal_says_how_long_nothing_was_better() -> None:
    def line(x: int, ratio: float | None) -> Line:
        return Line("a", {"x": x}, ratio, 1e-3)

    assert candidates_since_better([]) == 0
    assert candidates_since_better([line(0, 1.0), line(1, None), line(2, 0.995)]) == 3
    assert candidates_since_better([line(0, 1.0), line(1, 0.8), line(2, 0.9), line(1, 0.7), line(3, 0.799)]) == 2  # 1 is an old one
