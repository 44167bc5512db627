"""The tests of the profiler need torch and the npu."""

from __future__ import annotations

import tests.npu_device  # noqa: F401
