"""aoe in a process of its own that is ended while it searches: what was found is kept, and after kill -9 it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
import pytest

from tests.tools.conftest import SOURCES

LAYERS = 8  # each of another number of channels, so that searching takes a while
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A chain of pointwise convolutions."""
    rng, channels = np.random.default_rng(0), [16 + 8 * number for number in range(LAYERS + 1)]
    weights = [rng.standard_normal((b, a, 1, 1), np.float32) for a, b in pairwise(channels)]
    names = ["x", *(f"t{n}" for n in range(1, LAYERS)), "y"]
    nodes = [helper.make_node("Conv", [names[n], f"w{n}"], [names[n + 1]], name=f"conv{n}") for n in range(LAYERS)]
    given, result = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, count, 20, 20])
        for name, count in (("x", channels[0]), ("y", channels[-1]))
    )
    graph = helper.make_graph(nodes, "chain", [given], [result], [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "chain.onnx")
    return tmp_path / "chain.onnx"


@pytest.fixture
def start(model: Path, tmp_path: Path) -> Iterator[Start]:
    """`start("--reload", TUNING_NUM="4")` begins a tuning of the model in a process group of its own."""
    running: list[subprocess.Popen[str]] = []
    places = {"ASCEND_WORK_PATH": "work", "TUNE_BANK_PATH": "bank", "ANYCANN_CACHE_DIR": "cache"}
    variables = {name: str(tmp_path / folder) for name, folder in places.items()}
    (tmp_path / "cache").mkdir(mode=0o700)

    def begun(*words: str, **settings: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "anycann.tools.cli", "aoe", f"--model={model}", "--framework=5", "--job_type=2", "--threads=1"]
        environment = {**os.environ, **variables, **settings, "PYTHONPATH": str(SOURCES), "ENABLE_TUNE_BANK": "True"}
        running.append(
            subprocess.Popen(
                [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
            )
        )
        return running[-1]

    yield begun
    for process in running:
        process.kill()
        process.communicate()


def lines(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the journal."""
    texts = [path.read_text() for path in (folder / "work").rglob("journal.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


def ended(process: subprocess.Popen[str], folder: Path, number: signal.Signals, end: Callable[[int, int], None] = os.kill) -> str:
    """What the process says when it is sent a signal after its first measurements."""
    deadline = time.monotonic() + 600
    while not lines(folder):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    end(process.pid, number)
    return process.communicate(timeout=600)[0]


def bank(folder: Path) -> list[dict[str, Any]]:
    files = (folder / "bank").glob("op/*/unified_bank/*_1_AiCore_*.json")
    return [entry for path in files for entries in json.loads(path.read_text()).values() for entry in entries]


@pytest.mark.parametrize(
    ("number", "end"),
    [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill), (signal.SIGTERM, os.killpg), (signal.SIGHUP, os.killpg)],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM to the group", "SIGHUP to the group"],
)
def test_a_tuning_that_is_asked_to_end_keeps_what_was_found(
    start: Start, tmp_path: Path, number: signal.Signals, end: Callable[[int, int], None]
) -> None:
    process = start(TUNING_NUM="4")  # one round, after which some kernels are finished
    text = ended(process, tmp_path, number, end)
    assert process.returncode == 130, text
    (report,) = (tmp_path / "work").glob("aoe_result_opat_*.json")
    result = json.loads(report.read_text())[1]["OPAT"]
    assert result["opat_tuning_result"] == "tuning incomplete"
    assert result["repo_summary"]["candidate_num"] >= 1
    assert bank(tmp_path)
    assert list((tmp_path / "work").rglob("result/*_tune.om"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_what_was_ended_goes_on_with_reload(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    ended(start(TUNING_NUM="16"), tmp_path, number)
    begun, kept = lines(tmp_path), bank(tmp_path)
    assert all(entry["performance_after_tune(us)"] < entry["performance_before_tune(us)"] for entry in kept)  # no kernel is finished yet
    process = start("--reload", TUNING_NUM="16")
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    assert len(list((tmp_path / "work").glob("aoe_workspace/*"))) == 1
    assert len(bank(tmp_path)) >= LAYERS
    told = [(line["task"], line["point"]) for line in lines(tmp_path)]
    assert {line["task"] for line in begun} < {task for task, _ in told}
    slow = [(line["task"], line["point"]) for line in begun if line["ratio"] is None or line["ratio"] > 1.0]
    assert [told.count(one) for one in slow] == [1] * len(slow)  # is not measured again
    assert len({str(point) for task, point in told if task == begun[0]["task"]}) > sum(line["task"] == begun[0]["task"] for line in begun)
