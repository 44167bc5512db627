"""The examples for PyTorch need torch; their tests skip if it is not there. They see torch_npu as an installed AnyCANN gives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e '.[torch]'")
SHIMS = str(Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python")
if SHIMS not in sys.path:
    sys.path.insert(0, SHIMS)


@pytest.fixture(autouse=True)
def _first_device() -> Iterator[None]:
    """An example that takes npu:1 leaves the tests of other folders, which may follow in this process, npu:0."""
    yield
    if hasattr(torch, "npu"):
        torch.npu.set_device(0)
