"""Memory of Python objects whose addresses the program took: what lies there, and whether anybody but the sanitizer still keeps it."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import field
import sys

import numpy as np

from anycann.acl.sanitizer.places import Place
from anycann.acl.sanitizer.ranges import Range
from anycann.acl.util import LAST_BYTES, bytes_address
from anycann.runtime.memory import owner
from anycann.support.records import dataclass

_MOST_KEPT = 1 << 26  # bytes of objects that only the sanitizer keeps
_MOST_OBJECTS = 1024  # that are kept before those let go are looked for


@dataclass(frozen=True)
class Scattered:
    """An array of which only the first `nbytes` bytes lie one behind the other."""

    words: str
    nbytes: int
    taken: Place | None


@dataclass
class Owner:
    """An object whose address was taken at line `taken`."""

    thing: object
    range: Range
    taken: Place | None
    scattered: dict[int, Scattered] = field(default_factory=dict)  # views of it whose elements do not lie one behind the other

    @property
    def gone(self) -> bool:
        """True if the program has let the object go: its memory is kept by us alone."""
        return sys.getrefcount(self.thing) <= 2 + LAST_BYTES.count(self.thing)  # the attribute and the argument

    @property
    def words(self) -> str:
        return f"{type(self.thing).__name__} object of {self.range.nbytes} bytes"


class Owners:
    """By address. The objects are kept, so that an address means one object only; of those let go, only so many."""

    def __init__(self) -> None:
        self._by_address: dict[int, Owner] = {}
        self._starts: list[int] = []
        self._bytes = 0  # taken since objects were dropped last

    def take(self, thing: object, taken: Place | None, layout: bool = True) -> None:
        """The program asked for the address of bytes or of an array. layout: of just this array, not of another view of the same memory."""
        made = _owner(thing, taken)
        if made is None or not made.range.nbytes:
            return
        known = self._by_address.get(made.range.address)
        if known is None:
            insort(self._starts, made.range.address)
        elif known.thing is made.thing:
            made.scattered = known.scattered
        if layout and isinstance(thing, np.ndarray):
            _note_layout(made, thing)
        self._by_address[made.range.address] = made
        self._bytes += made.range.nbytes
        if self._bytes > _MOST_KEPT or len(self._starts) > _MOST_OBJECTS:
            self._drop()

    def look_for(self, address: int, values: Iterable[object], taken: Place | None) -> None:
        """The program may have an address from `array.ctypes.data`: the array is among its variables then."""
        found = [value for value in values if type(value) is np.ndarray and value.size and _reaches(value, address)]
        here = [array for array in found if int(array.ctypes.data) == address]
        if found:
            self.take((here or found)[0], taken, bool(here) and not any(array.flags.c_contiguous for array in here))

    def find(self, address: int) -> Owner | None:
        """The object that `address` lies in."""
        at = bisect_right(self._starts, address) - 1
        found = self._by_address[self._starts[at]] if at >= 0 else None
        return found if found is not None and address < found.range.end else None

    def _drop(self) -> None:
        """Forget what the program let go, but for the last half."""
        gone = [owner.range.address for owner in self._by_address.values() if owner.gone]
        for address in gone[: (len(gone) + 1) // 2]:
            del self._by_address[address]
        self._starts, self._bytes = sorted(self._by_address), 0


def _note_layout(owner: Owner, array: np.ndarray) -> None:
    address = int(array.ctypes.data)
    owner.scattered.pop(address, None)
    if not array.flags.c_contiguous:
        words = f"{array.dtype}{list(array.shape)} with strides of {list(array.strides)} bytes"
        owner.scattered[address] = Scattered(words, _bytes_in_order(array), owner.taken)


def _bytes_in_order(array: np.ndarray) -> int:
    """How many bytes from the first element on are those of the next elements."""
    nbytes = array.itemsize
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if size > 1 and stride != nbytes:
            break
        nbytes *= size
    return nbytes


def _reaches(array: np.ndarray, address: int) -> bool:
    """True if `address` lies in the memory that `array` is a view of, or is its own."""
    whole = owner(array)
    return int(whole.ctypes.data) <= address < int(whole.ctypes.data) + whole.nbytes


def _owner(thing: object, taken: Place | None) -> Owner | None:
    """The object whose memory it is: bytes, or the array that a view looks at; None for memory of anything else."""
    while isinstance(thing, np.ndarray) and thing.base is not None:
        thing = thing.base
    if isinstance(thing, bytes):
        return Owner(thing, Range(bytes_address(thing), len(thing)), taken)
    if type(thing) is np.ndarray and thing.flags.owndata:
        return Owner(thing, Range(int(thing.ctypes.data), thing.nbytes), taken)
    return None
