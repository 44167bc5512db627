"""The runner of the conformance suite itself: it must not take a dead process for a passed case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
import threading

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
        import time; open(f"hanging-{os.getpid()}", "w").close(); time.sleep(600)
    print(json.dumps({"name": name, "error": "", "native": True, "seconds": 0.0}), flush=True)
"""


class EndsWhatHangs(threading.Thread):
    """In place of a Timer: what takes long on a busy machine is not ended, what says that it hangs is, at once."""

    def __init__(self, _seconds: float, kill: Callable[[], None]):
        super().__init__(daemon=True)
        self._kill, self._over = kill, threading.Event()
        self._mark = Path(f"hanging-{kill.__self__.pid}")  # type: ignore[attr-defined]

    def run(self) -> None:
        while not self._over.wait(0.01):
            if self._mark.exists():
                self._kill()
                return

    def cancel(self) -> None:
        self._over.set()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_crash_and_a_hang_fail_their_case_and_the_rest_goes_on(processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(CRASHING_WORKER)
    monkeypatch.setattr(onnx_processes, "WORKER", worker)
    monkeypatch.setattr(onnx_processes, "CASE_SECONDS", 1)
    monkeypatch.setattr(onnx_processes, "Timer", EndsWhatHangs)
    monkeypatch.chdir(tmp_path)
    outcomes = run_in_processes(["first", "crash", "second", "hang", "third"], processes)
    assert {name for name, outcome in outcomes.items() if not outcome.error} == {"first", "second", "third"}
    assert "status -11" in outcomes["crash"].error
    assert "after 1 s" in outcomes["hang"].error
