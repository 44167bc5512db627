"""What all tests share: a verifier after every pass, no knowledge bank, and random numbers that a second run draws again.

A run has one seed, printed at its top, and each test a stream of its own from it: a test that fails fails again, alone or among others,
here or on another machine. By default it is always the same one, so that luck decides no run; `scripts/test --large` draws a new one, and
ANYCANN_TEST_SEED sets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
import os
from pathlib import Path
import random
import signal
import sys
from typing import Any
from zlib import crc32

import numpy as np
import pytest

os.environ.setdefault("ANYCANN_VERIFY", "1")
os.environ.setdefault("ENABLE_TUNE_BANK", "0")  # what this machine was tuned to must not change what tests see
# Every processor has tests to run. Threads of torch that wait awake took 2 to 6 times as long, and so do processes started to compile.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("ANYCANN_COMPILE_WORKERS", "1")

ROOT = Path(__file__).resolve().parent.parent
SEED = int(os.environ.setdefault("ANYCANN_TEST_SEED", "1951866850"))
SLOW_TEST = 50  # other tests take as long as one that is marked as slow, which takes about 10 s
_seeded_rng = np.random.default_rng
_calls: Counter[str] = Counter()
_test = ""  # the test that runs; empty while modules are imported and fixtures of more than one test are made


def _default_rng(seed: Any = None) -> np.random.Generator:
    """numpy's, but a call without a seed draws from a stream of its own for SEED, the test (or the file that asks) and the call."""
    if seed is not None:
        return _seeded_rng(seed)
    where = _test or os.path.relpath(sys._getframe(1).f_code.co_filename, ROOT)
    _calls[where] += 1
    return _seeded_rng((SEED, crc32(where.encode()), _calls[where]))


np.random.default_rng = _default_rng


def _hand_on_no_ignored_signals() -> None:
    """Whoever starts the tests by nohup, or behind a shell's &, has signals ignored; so would be the processes that tests start and signal.

    A handler that does nothing ignores them here as before, and is not inherited.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--emulate", metavar="NAME", help="run kernels for avx512, znver4 or sapphirerapids in an emulator")


def pytest_configure(config: pytest.Config) -> None:
    _hand_on_no_ignored_signals()
    if config.option.emulate:
        from tests.emulation.plugin import emulate

        config.pluginmanager.register(emulate(config.option.emulate))
        os.environ["ANYCANN_TEST_EMULATE"] = config.option.emulate  # for processes that tests start, see `assert_passes_in_child`
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the files, those that take longest come first: none is left alone with one at the end.

    Needs --no-loadscope-reorder: xdist would order them by their number of tests.
    """
    if hasattr(config, "workerinput"):
        takes: Counter[Path] = Counter()
        for item in items:
            takes[item.path] += SLOW_TEST if item.get_closest_marker("slow") else 1
        items.sort(key=lambda item: -takes[item.path])


def pytest_report_header() -> str:
    return f"random numbers: ANYCANN_TEST_SEED={SEED}"


def _seed(where: str) -> None:
    """Begin the streams that have no generator of their own anew, for a test or a file that is imported."""
    seed = (SEED + crc32(where.encode())) % 2**32
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        _seed(collector.nodeid)


@pytest.fixture(autouse=True)
def _random_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    global _test
    _test = request.node.nodeid
    _calls.pop(_test, None)
    _seed(_test)
    yield
    _test = ""
