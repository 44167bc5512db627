"""Virtual devices: how many there are, how much memory each has, and what is taken of it."""

from __future__ import annotations

from dataclasses import field
import os
import threading

from anycann.runtime.published import Publisher
from anycann.support import options as settings
from anycann.support.errors import DeviceError
from anycann.support.records import dataclass


@dataclass
class Device:
    """Virtual device `number`. Its memory is the machine's; `memory_bytes` bounds what programs may take of it, all kinds together."""

    number: int
    memory_bytes: int
    taken_bytes: int = 0
    most_taken_bytes: int = 0
    publisher: Publisher | None = field(default=None, repr=False)  # tells other processes
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)  # garbage that goes meanwhile gives memory back

    @property
    def free_bytes(self) -> int:
        return self.memory_bytes - self.taken_bytes

    def take(self, nbytes: int) -> None:
        """Account for `nbytes`. Raises DeviceError if there is not so much left."""
        with self._lock:
            if nbytes > self.free_bytes:
                raise DeviceError(
                    f"device {self.number} is out of memory: {nbytes} bytes asked for, {self.free_bytes} of {self.memory_bytes} free"
                )
            self.taken_bytes += nbytes
            self.most_taken_bytes = max(self.most_taken_bytes, self.taken_bytes)
            self._tell()

    def give_back(self, nbytes: int) -> None:
        """End the account of `nbytes`."""
        with self._lock:
            self.taken_bytes -= nbytes
            self._tell()

    def _tell(self) -> None:
        if self.publisher is not None:
            self.publisher.tell(self.number, self.taken_bytes)


def devices() -> tuple[Device, ...]:
    """The devices that ANYCANN_DEVICES and ANYCANN_DEVICE_MEMORY ask for: one, with as much memory as the machine, if they are not set."""
    count = settings.DEVICES.get() or 1
    mebibytes = settings.DEVICE_MEMORY.get()
    nbytes = machine_memory_bytes() if mebibytes is None else mebibytes << 20
    publisher = Publisher(count)
    return tuple(Device(number, nbytes, publisher=publisher) for number in range(count))


def machine_memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
