from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """What torch.compile knows of functions is forgotten, and random numbers begin anew."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiled() -> Callable[..., Any]:
    """torch.compile with the backend anycann."""
    from anycann.adapters.torch.graph.backend import anycann

    return lambda model, **options: torch.compile(model, backend=anycann, **options)
