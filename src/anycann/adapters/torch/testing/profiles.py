"""What tests ask of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check_operators_in_prof(expected_operators: Sequence[str], prof: Any, unexpected_operators: Sequence[str] | None = None) -> bool:
    """Whether `prof` (of torch.profiler or torch.autograd.profiler) saw all expected operators and none of the others."""
    seen = {event.key.replace("cached_", "") for event in prof.key_averages()}
    return seen.issuperset(expected_operators) and seen.isdisjoint(unexpected_operators or ())
