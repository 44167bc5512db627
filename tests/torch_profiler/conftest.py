"""The tests of the profiler need torch; they skip if it is not there."""

from __future__ import annotations

from pathlib import Path
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[torch]'")
SHIMS = str(Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python")
if SHIMS not in sys.path:
    sys.path.insert(0, SHIMS)
import torch_npu  # noqa: E402, F401
