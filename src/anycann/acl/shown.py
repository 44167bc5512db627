"""Host memory that a program has shown: addresses that acl.util gave of its arrays and bytes."""

from __future__ import annotations

from collections import deque

_MOST = 64


class ShownMemory:
    """The last addresses given, with the bytes behind them.

    On boards where the chip is the processor's neighbour (Atlas 200), device and host share their memory, and programs written there copy
    "from device to device" from a numpy array. Those copies are done here too; an address that nobody has shown stays a mistake.
    """

    def __init__(self) -> None:
        self._ranges: deque[tuple[int, int]] = deque(maxlen=_MOST)

    def show(self, address: int, nbytes: int) -> int:
        """Remember an address; answers with it."""
        self._ranges.append((address, nbytes))
        return address

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether these bytes were shown."""
        return any(start <= address and address + nbytes <= start + shown for start, shown in tuple(self._ranges))

    def forget(self) -> None:
        """Nothing was shown."""
        self._ranges.clear()


SHOWN = ShownMemory()
