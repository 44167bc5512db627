"""What all tests share: the verifier looks at every graph after every pass, and no knowledge bank is asked."""

from __future__ import annotations

import os

os.environ.setdefault("ANYCANN_VERIFY", "1")
os.environ.setdefault("ENABLE_TUNE_BANK", "0")  # what this machine was tuned to must not change what tests see
