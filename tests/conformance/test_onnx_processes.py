"""The runner of the conformance suite itself: it must not take a dead process for a passed case."""

from __future__ import annotations

from pathlib import Path

import onnx_processes
from onnx_processes import run_in_processes
import pytest

CRASHING_WORKER = """
import json, os, sys
for line in sys.stdin:
    name = line.strip()
    if name == "crash":
        os.kill(os.getpid(), 11)
    if name == "hang":
        import time; time.sleep(60)
    print(json.dumps({"name": name, "error": "", "native": True, "seconds": 0.0}), flush=True)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_crash_and_a_hang_fail_their_case_and_the_rest_goes_on(processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(CRASHING_WORKER)
    monkeypatch.setattr(onnx_processes, "WORKER", worker)
    monkeypatch.setattr(onnx_processes, "CASE_SECONDS", 1)
    outcomes = run_in_processes(["first", "crash", "second", "hang", "third"], processes)
    assert {name for name, outcome in outcomes.items() if not outcome.error} == {"first", "second", "third"}
    assert "status -11" in outcomes["crash"].error
    assert "after 1 s" in outcomes["hang"].error
