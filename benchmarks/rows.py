"""What was measured of one operator beside another engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Seconds of one call, the greatest relative error of a result against the other engine, where it ran; or why there is nothing."""

    name: str
    ours: float = 0.0
    theirs: float = 0.0
    error: float = 0.0
    engine: str = ""
    failure: str = ""

    @property
    def ratio(self) -> float:
        """Our time over theirs."""
        return self.ours / self.theirs if self.theirs else float("inf")
