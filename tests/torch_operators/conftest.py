"""The tests of the operators of torch_npu need torch and the npu."""

from __future__ import annotations

import tests.npu_device  # noqa: F401
