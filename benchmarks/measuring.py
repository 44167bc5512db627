"""One model, measured. Everything that a big process would disturb runs in a child of its own; this file is also that child's program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
import importlib
import importlib.util
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import Any

from anycann.support.errors import UsageError
from anycann.tools.engines import OPENERS, Engine, SessionEngine
from anycann.tools.measure import Latency, measure_cold_start, measure_interleaved
from benchmarks.zoo.models import Model, by_name, relative_error, run_all

LEAST_RUNS = 7


class OpenVino:
    """OpenVINO behind the same call. `threads` is OpenVINO's number of inference threads."""

    name = "openvino"

    def __init__(self, path: str, threads: int):
        openvino = importlib.import_module("openvino")
        hints = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        self.compiled = openvino.Core().compile_model(path, "CPU", hints)
        self.request = self.compiled.create_infer_request()
        self.inputs: tuple[Any, ...] = ()

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name."""
        results = self.request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return {output.get_any_name(): value for output, value in results.items()}


@dataclass(frozen=True)
class Speed:
    """Latencies by engine, the worst relative error against ONNX Runtime, and whether all answers are the same."""

    latency: dict[str, Latency]
    error: float
    answers_equal: bool


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


def engines(path: Path, threads: int) -> list[Engine]:
    """Every engine that is installed."""
    found: list[Engine] = [OPENERS["anycann"](str(path), threads)]
    if importlib.util.find_spec("onnxruntime"):
        found.append(OPENERS["onnxruntime"](str(path), threads))
    if importlib.util.find_spec("openvino"):
        found.append(OpenVino(str(path), threads))
    return found


def measure_speed(model: Model, threads: int, seconds: float) -> Speed:
    """The first call of the model's feeds, engines in turn, for `seconds`; then the outputs of all calls compared."""
    opened = engines(model.path(), threads)
    feeds = model.feeds()[0]
    started = time.perf_counter()
    for engine in opened:
        engine.run(feeds)
    once = time.perf_counter() - started
    runs = max(LEAST_RUNS, min(300, int(seconds / max(once, 1e-6))))
    latency = measure_interleaved(opened, feeds, runs, seconds)
    ours, theirs = (run_all(engine.session, model) for engine in opened[:2] if isinstance(engine, SessionEngine))
    error = max(relative_error(g, r) for got, right in zip(ours, theirs, strict=True) for g, r in zip(got, right, strict=True))
    equal = all(model.answer(got) == model.answer(right) for got, right in zip(ours, theirs, strict=True))
    return Speed(latency, error, equal)


def speed_in_child(model: Model, threads: int, seconds: float) -> Speed:
    """`measure_speed` in a fresh process. Raises UsageError with its last words if that fails."""
    words = [sys.executable, "-m", "benchmarks.measuring", model.name, str(threads), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise UsageError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1])
    facts = json.loads(done.stdout.splitlines()[-1])
    return Speed({name: Latency(**row) for name, row in facts["latency"].items()}, facts["error"], facts["answers_equal"])


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
    (chosen,) = by_name([sys.argv[1]])
    print(json.dumps(asdict(measure_speed(chosen, int(sys.argv[2]), float(sys.argv[3])))))
