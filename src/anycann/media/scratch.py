"""Memory for the time of one picture, kept for the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from anycann.runtime.memory import allocate


class Scratch:
    """Memory that is used again by the next who asks, one at a time; further threads get memory of their own."""

    def __init__(self) -> None:
        self._kept: list[NDArray[np.uint8]] = []

    @contextmanager
    def lent(self, nbytes: int) -> Iterator[NDArray[np.uint8]]:
        """At least `nbytes` aligned bytes of any content."""
        try:
            memory = self._kept.pop()
        except IndexError:
            memory = allocate(nbytes)
        if memory.size < nbytes:
            memory = allocate(nbytes)
        yield memory
        if not self._kept:
            self._kept.append(memory)
