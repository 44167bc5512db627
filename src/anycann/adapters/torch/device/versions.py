"""`torch.npu.utils.get_cann_version`: programs ask it before they use what later versions have."""

from __future__ import annotations

from anycann.target.version import CANN_VERSION, PACKAGES, order


def get_cann_version(module: str = "CANN") -> str:
    """The version of a package of CANN that this stands for; "" for a name that is none, and for the driver, which is not there."""
    return CANN_VERSION if module in PACKAGES else ""


def is_cann_at_least(version: str, module: str = "CANN") -> bool:
    """Whether a package is as new as `version`. Raises ValueError if that is no version; a package that is not there is never new."""
    wanted = order(version)
    return module in PACKAGES and order(CANN_VERSION) >= wanted
