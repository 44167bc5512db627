"""The tests of migrated scripts need torch; they skip if it is not there."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[torch]'")
