"""Every allocation of the program with its line, those that were freed too, and which of its bytes were written."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from dataclasses import field
import threading

from anycann.acl.sanitizer.places import Place, user_place
from anycann.acl.sanitizer.ranges import Covered, Range
from anycann.runtime.allocations import Allocation, Allocations
from anycann.support.records import dataclass

FRESH = 0xCD  # what memory of a device holds until it is written
_MOST_FILLED = 1 << 26  # bytes; larger memory is left as it comes
_MOST_KEPT = 1 << 28  # bytes of freed memory whose addresses are not given out again yet
_MOST_BLOCKS = 4096  # of them


@dataclass
class Block:
    """An allocation. `freed` is None while it lives."""

    allocation: Allocation
    allocated: Place | None
    freed: Place | None = None
    reset: Place | None = None  # the line that reset its device, which took it
    written: Covered = field(default_factory=Covered)

    @property
    def range(self) -> Range:
        return Range(self.allocation.address, self.allocation.nbytes)

    @property
    def on_device(self) -> bool:
        return self.allocation.kind != "host"

    @property
    def words(self) -> str:
        side = f"device {self.allocation.device}" if self.on_device else "the host"
        return f"{self.allocation.nbytes} bytes of {side} at {self.allocation.address:#x}"

    def wrote(self, target: Range) -> None:
        """Remember that these bytes have been written."""
        self.written.add(target.address, target.end)

    def wrote_all(self) -> None:
        """Who writes from here on cannot be seen."""
        self.wrote(self.range)

    def unwritten(self, source: Range) -> int:
        """How many of these bytes nobody has written; 0 for host memory, which programs write behind our back."""
        return self.written.missing(source.address, source.end) if self.on_device else 0

    @property
    def lines(self) -> dict[str, Place | None]:
        return {"allocated": self.allocated, "freed": self.freed, "reset": self.reset}


class Blocks:
    """Live and freed blocks of `allocations`. Freed memory is kept for a while, so that its addresses mean nothing else."""

    def __init__(self, allocations: Allocations) -> None:
        self.live: dict[int, Block] = {}
        self._allocations = allocations
        self._freed: OrderedDict[int, Block] = OrderedDict()  # by address; being kept, they do not overlap
        self._starts: list[int] = []
        self._kept_bytes = 0
        self._lock = threading.RLock()  # of what was freed: any thread frees, in a destructor too
        allocations.created.append(self._created)
        allocations.released.append(self._released)

    def find(self, address: int) -> Block | None:
        """The live block that `address` lies in."""
        found = self._allocations.find(address)
        return self.live.get(found.address) if found is not None else None

    def find_freed(self, address: int) -> Block | None:
        """The block that `address` lay in and that is gone."""
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            found = self._freed[self._starts[at]] if at >= 0 else None
        return found if found is not None and address < found.range.end else None

    def reset(self, device: int, where: Place | None) -> None:
        """The memory of a device went with it."""
        for block in self.live.values():
            if block.allocation.device == device:
                block.reset = block.reset or where

    def _created(self, made: Allocation) -> None:
        if made.nbytes <= _MOST_FILLED and made.kind != "host" and not made.filled:
            made.block[...] = FRESH
        place = user_place()
        self.live[made.address] = block = Block(made, place)
        if place is None or made.filled:  # not of the program's own: whoever took it for the program fills it
            block.wrote_all()

    def _released(self, gone: Allocation) -> None:
        block = self.live.pop(gone.address, None)
        if block is None:
            return
        block.freed = user_place()
        if gone.kind == "mapped":
            return  # nothing keeps its addresses, which may mean something else at once
        with self._lock:
            self._freed[gone.address] = block
            insort(self._starts, gone.address)
            self._kept_bytes += gone.nbytes
            while len(self._freed) > 1 and (self._kept_bytes > _MOST_KEPT or len(self._freed) > _MOST_BLOCKS):
                address, dropped = self._freed.popitem(last=False)
                self._kept_bytes -= dropped.allocation.nbytes
                del self._starts[bisect_right(self._starts, address) - 1]
