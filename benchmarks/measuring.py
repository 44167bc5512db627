"""One model, measured. Everything that a big process would disturb runs in a child of its own; this file is also that child's program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from anycann.support.errors import UsageError
from anycann.target.target import host
from anycann.tools.engines import Engine
from anycann.tools.measure import Latency, measure_cold_start, measure_interleaved, summaries
from benchmarks.cores import usual_way
from benchmarks.engines.arithmetic import Arithmetic
from benchmarks.engines.job import Absent, Job, Precision
from benchmarks.engines.onnx_runtime import open_onnx_runtime
from benchmarks.engines.ours import open_ours
from benchmarks.engines.table import open_peers
from benchmarks.zoo import quantised
from benchmarks.zoo.models import Model, Outputs, by_name, relative_error, run_all

LEAST_RUNS, MOST_RUNS = 11, 300
REST_SECONDS = 0.003
MOST_WORDS = 300  # characters of a failure
# OpenMP's threads wait awake for their next work, by default for up to tens of milliseconds, which would be the next engine's; this is
# about one, and REST_SECONDS outlasts it
QUIET = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}


@dataclass(frozen=True)
class Speed:
    """Latencies and the greatest relative error against ONNX Runtime in float32, by engine, and why peers are missing.

    flops: operations of one run. answers_equal: whether AnyCANN's answers are the reference's; None where either has none. arithmetic:
    float32 operations a second that multiply-adds reached in turn with the engines, on as many threads; 0 where it was not measured.
    share: of multiply-adds that run between the kernels, what AnyCANN's float32 kernels reach (shares.py); 0 where it was not measured.
    ratios: a peer's time over AnyCANN's in the same round, the median of the rounds: where another program comes to the processor, or
    goes, while they are measured, one engine's median may be of the rounds with it and another's of those without. Empty where it was not
    kept. flag: nanoseconds that a flag took from one core to another before and behind (lines.py); empty with one thread.
    """

    latency: dict[str, Latency]
    errors: dict[str, float] = field(default_factory=dict)
    answers_equal: bool | None = None
    absent: dict[str, str] = field(default_factory=dict)
    flops: int = 0
    arithmetic: float = 0.0
    share: float = 0.0
    ratios: dict[str, float] = field(default_factory=dict)
    flag: tuple[float, ...] = ()


@dataclass(frozen=True)
class Footprint:
    """A fresh process with one engine: seconds to load and of the first call, and its peak of resident bytes."""

    load_seconds: float
    first_call_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Compilation:
    """`anycann atc` on the model: seconds with an empty and with a filled kernel cache, bytes of the .om, operations of one run."""

    cold_seconds: float
    cached_seconds: float
    om_bytes: int
    flops: int


def file_of(model: Model, precision: Precision) -> Path:
    """The ONNX file that is run in a precision; it need not be there."""
    return quantised.target(model) if precision == "int8" else model.path()


def measure_speed(model: Model, threads: int, seconds: float, precision: Precision = "fp32", peers: Sequence[str] = ()) -> Speed:
    """The first call of the model's feeds, engines in turn, for `seconds`; then the outputs of all calls beside the reference's."""
    job = Job(model, file_of(model, precision), model.feeds()[0], threads, precision)
    ours = open_ours(job)
    others, absent = open_peers(job, peers)
    engines: list[Engine] = [ours, *others]
    arithmetic, flag = Arithmetic(threads), _flag(threads)
    rounds = measure_interleaved([*engines, arithmetic], job.feeds, _runs(engines, job, seconds), seconds, rest_seconds=REST_SECONDS)
    flag += _flag(threads)
    latency = summaries(rounds)
    rate = arithmetic.operations / latency.pop(arithmetic.name).p50
    ratios = {peer.name: paired_ratio(rounds[peer.name], rounds[ours.name]) for peer in others}
    names, wanted = reference(model, threads)
    outputs = {engine.name: run_all(_AsSession(engine, names), model) for engine in engines} if wanted else {}
    errors = {name: greatest_error(got, wanted) for name, got in outputs.items()}
    share = _share(job, seconds) if ours.flops and precision == "fp32" else 0.0
    equal = _equal(model, outputs["anycann"], wanted) if wanted else None
    return Speed(latency, errors, equal, absent, ours.flops, rate, share, ratios, flag)


def _flag(threads: int) -> tuple[float, ...]:
    return (usual_way(host()),) if threads > 1 else ()


def paired_ratio(seconds: Sequence[float], ours: Sequence[float]) -> float:
    """The median over the rounds of their time over ours."""
    return float(np.median(np.asarray(seconds) / np.asarray(ours)))


def _equal(model: Model, got: Sequence[Outputs], wanted: Sequence[Outputs]) -> bool | None:
    """Whether all calls have the same answer; None for a model without one."""
    answers = [model.answer(outputs) for outputs in wanted]
    return None if all(answer is None for answer in answers) else [model.answer(outputs) for outputs in got] == answers


def _share(job: Job, seconds: float) -> float:
    from benchmarks.shares import share_of  # prints tables of what is measured here

    return share_of(job.path, job.feeds, job.threads, seconds)


def _runs(engines: Sequence[Engine], job: Job, seconds: float) -> int:
    """How often each is measured: two calls and a rest of each engine fit into `seconds`."""
    rounds = []
    for _ in range(3):
        started = time.perf_counter()
        for engine in engines:
            engine.run(job.feeds)
        rounds.append(time.perf_counter() - started)
    return max(LEAST_RUNS, min(MOST_RUNS, int(seconds / (2 * min(rounds) + REST_SECONDS * len(engines)))))


def reference(model: Model, threads: int) -> tuple[Sequence[Any], list[Outputs]]:
    """The outputs as ONNX Runtime declares them, and what it answers in float32 to all calls; nothing where it is not installed."""
    try:
        engine = open_onnx_runtime(Job(model, model.path(), model.feeds()[0], threads))
    except Absent:
        return [], []
    return engine.session.get_outputs(), run_all(engine.session, model)


def greatest_error(got: Sequence[Outputs], wanted: Sequence[Outputs]) -> float:
    """Over all outputs of all calls."""
    return max(relative_error(g, w) for mine, right in zip(got, wanted, strict=True) for g, w in zip(mine, right, strict=True))


@dataclass(frozen=True)
class _AsSession:
    """An engine called as a session is; results are copied, for some engines write the next ones over them."""

    engine: Engine
    outputs: Sequence[Any]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> Any:
        return [np.array(value) for value in self.engine.run(feeds).values()]

    def get_outputs(self) -> Sequence[Any]:
        return self.outputs


def speed_in_child(model: Model, threads: int, seconds: float, precision: Precision = "fp32", peers: Sequence[str] = ()) -> Speed:
    """`measure_speed` in a fresh process. Raises UsageError with its last words if that fails."""
    words = [sys.executable, "-m", "benchmarks.measuring", model.word, str(threads), str(seconds), precision, ",".join(peers)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**QUIET, **os.environ})
    if done.returncode:
        raise UsageError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1][:MOST_WORDS])
    return speed_of(json.loads(done.stdout.splitlines()[-1]))


def speed_of(facts: Mapping[str, Any]) -> Speed:
    """From JSON."""
    latency = {name: Latency(**row) for name, row in facts["latency"].items()}
    return Speed(**{**facts, "latency": latency, "flag": tuple(facts.get("flag", ()))})


def measure_compilation(model: Model, folder: Path) -> tuple[Compilation, Path]:
    """Run `anycann atc` twice, beginning with no kernel cache; also gives the .om, which belongs to the cache in `folder`."""
    shapes = ";".join(f"{name}:{','.join(map(str, array.shape))}" for name, array in model.feeds()[0].items())
    words = ["atc", f"--model={model.path()}", "--framework=5", "--input_format=ND", f"--input_shape={shapes}"]
    with cache_in(folder):
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            _anycann(*words, f"--output={folder / model.name}")
            seconds.append(time.perf_counter() - started)
        om = next(folder.glob(f"{model.name}*.om"))
        facts = json.loads(_anycann("show", str(om), "--json"))
    flops = sum(program["flops"] for program in facts["programs"] if not program["region"])
    return Compilation(seconds[0], seconds[1], om.stat().st_size, flops), om


def _anycann(*words: str) -> str:
    """The command's standard output. Raises UsageError with its last words if it fails."""
    done = subprocess.run([sys.executable, "-m", "anycann.tools.cli", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise UsageError((done.stdout + done.stderr).strip().splitlines()[-1])
    return done.stdout


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Child processes keep their kernels in `folder`."""
    before = os.environ.get("ANYCANN_CACHE_DIR")
    os.environ["ANYCANN_CACHE_DIR"] = str(folder / "cache")
    try:
        yield
    finally:
        del os.environ["ANYCANN_CACHE_DIR"]
        if before is not None:
            os.environ["ANYCANN_CACHE_DIR"] = before


def measure_footprints(model: Model, om: Path, folder: Path, threads: int) -> dict[str, Footprint]:
    """Each engine alone in a fresh process, AnyCANN with the offline model and the kernel cache in `folder`."""
    footprints, feeds = {}, model.feeds()[0]
    for name, path in (("anycann", om), ("onnxruntime", model.path())):
        with cache_in(folder):
            cold = measure_cold_start(name, str(path), feeds, threads)
        footprints[name] = Footprint(cold.load_seconds, cold.first_call_seconds, cold.peak_bytes)
    return footprints


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for offline models and their kernel cache that goes away."""
    return tempfile.TemporaryDirectory(prefix="anycann-benchmark-")


if __name__ == "__main__":
    chosen_name, count, how_long, how, asked = sys.argv[1:]
    (chosen,) = by_name([chosen_name])
    print(json.dumps(asdict(measure_speed(chosen, int(count), float(how_long), how, [n for n in asked.split(",") if n]))))  # type: ignore[arg-type]
