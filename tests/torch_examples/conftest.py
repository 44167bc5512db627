"""The examples for PyTorch need torch; their tests skip if it is not there. They see torch_npu as an installed AnyCANN gives it."""

from __future__ import annotations

from pathlib import Path
import sys

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[torch]'")
SHIMS = str(Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python")
if SHIMS not in sys.path:
    sys.path.insert(0, SHIMS)
