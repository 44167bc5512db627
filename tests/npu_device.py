"""PyTorch with the npu device, for the tests that import this; they skip where torch is not there."""

from __future__ import annotations

from pathlib import Path
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[torch]'")
SHIMS = str(Path(__file__).parents[1] / "src" / "anycann" / "shims" / "python")
if SHIMS not in sys.path:
    sys.path.insert(0, SHIMS)
import torch_npu  # noqa: E402, F401
