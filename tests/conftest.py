"""What all tests share: a verifier after every pass, no knowledge bank, and random numbers that a second run draws again.

Tests draw new numbers whenever a source changes: the seed of a run is the checksum of the sources. It is printed at the top, and
ANYCANN_TEST_SEED sets another one. A test that fails fails again, alone or among others, here or on another machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
import os
from pathlib import Path
import random
import sys
from typing import Any
from zlib import crc32

import numpy as np
import pytest

os.environ.setdefault("ANYCANN_VERIFY", "1")
os.environ.setdefault("ENABLE_TUNE_BANK", "0")  # what this machine was tuned to must not change what tests see

ROOT = Path(__file__).resolve().parent.parent


def _checksum_of_sources() -> int:
    """Of all Python files of the package and its tests, whatever their order in the folder."""
    checksum = 0
    for path in sorted((*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"))):
        checksum = crc32(path.read_bytes(), checksum)
    return checksum


SEED = int(os.environ.setdefault("ANYCANN_TEST_SEED", str(_checksum_of_sources())))
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


def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED


def pytest_report_header() -> str:
    return f"random numbers: ANYCANN_TEST_SEED={SEED}"


@pytest.fixture(autouse=True)
def _random_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    global _test
    _test = request.node.nodeid
    _calls.pop(_test, None)
    seed = (SEED + crc32(_test.encode())) % 2**32
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    yield
    _test = ""
