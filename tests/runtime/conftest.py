"""What the tests of the runtime share."""

from __future__ import annotations

from collections.abc import Iterator

from programs import Kernels
import pytest

from anycann.runtime.thread_pool import ThreadPool


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture(scope="session", params=[1, 2, 3], ids=lambda threads: f"{threads} threads")
def pool(request: pytest.FixtureRequest) -> Iterator[ThreadPool]:
    with ThreadPool(request.param) as pool:
        yield pool


@pytest.fixture(scope="session")
def two_threads() -> Iterator[ThreadPool]:
    with ThreadPool(2) as pool:
        yield pool
