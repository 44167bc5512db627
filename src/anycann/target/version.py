"""The version of CANN that this stands for, and which of two versions of CANN is the newer."""

from __future__ import annotations

import re

CANN_VERSION = "8.1.RC1"  # the toolkit whose interfaces are here
PACKAGES = ("CANN", "RUNTIME", "COMPILER", "HCCL", "TOOLKIT", "OPP", "OPP_KERNEL")

_STAGES = {"T": 0, "RC": 1, "": 2}  # a test version, a release candidate, a release
_FORM = re.compile(r"(\d+)\.(\d+)\.(T|RC|)(\d+)(?:[.-](alpha|beta)\.?(\d+))?", re.IGNORECASE)


def order(version: str) -> tuple[int, ...]:
    """A key that sorts versions as they follow each other: 8.1.RC1.alpha001 < 8.1.RC1 < 8.1.0. Raises ValueError for another form."""
    found = _FORM.fullmatch(version)
    if found is None:
        raise ValueError(f"{version!r} is no version of CANN; accepted: 8.1.RC1, 8.1.0, 8.1.T5, 8.1.RC1.alpha001 and the like")
    major, minor, stage, number, early, count = found.groups()
    before_release = {"alpha": 0, "beta": 1}[early.lower()] if early else 2
    return int(major), int(minor), _STAGES[stage.upper()], int(number), before_release, int(count or 0)
