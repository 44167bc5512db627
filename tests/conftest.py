"""What all tests share: the verifier looks at every graph after every pass."""

from __future__ import annotations

import os

os.environ.setdefault("ANYCANN_VERIFY", "1")
