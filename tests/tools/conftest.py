"""Running commands in this process and in one of their own."""

from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path
import subprocess
import sys
from typing import TypeAlias

from click.testing import CliRunner, Result
import pytest

from anycann.tools.cli import main

Invoke: TypeAlias = Callable[..., Result]
Process: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]
SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def invoke() -> Invoke:
    """`invoke("show", "x.om")` runs a command in this process; `.stdout`, `.stderr` and `.exit_code` say what happened."""
    return lambda *words: CliRunner().invoke(main, [str(word) for word in words], prog_name="anycann")


@pytest.fixture
def process() -> Process:
    """The same in a process of its own; keywords are environment variables."""

    def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        command = [sys.executable, "-m", "anycann.tools.cli", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)

    return run


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(folder))
