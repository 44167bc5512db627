"""The tests of the npu device need torch and the npu."""

from __future__ import annotations

import tests.npu_device  # noqa: F401
