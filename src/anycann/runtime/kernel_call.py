"""A call of one kernel that is told its sizes when it runs: its arguments are sizes, int64, and then arrays."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.runtime import memory
from anycann.runtime.dispatch import Block

_PACK_ROW = Struct("=2q").pack_into


class KernelCall:
    """What one call at a time owns: a table of one row and its block (`dispatch.Block`), the kernel's sizes, and scratch memory."""

    def __init__(self, address: int, arrays: int, sizes: int):
        pointers, patches = np.zeros(1 + arrays, np.int64), np.array([(n, 1 + n, 0) for n in range(arrays)], np.int64)
        row, block, numbers = (np.zeros(count, np.int64) for count in (4, Block.ARRAYS + arrays, sizes))
        self._kept = pointers, patches
        pointers[0] = numbers.ctypes.data
        row[:2] = address, pointers.ctypes.data
        block[[Block.TABLE, Block.ROWS]] = row.ctypes.data, 1
        block[[Block.POINTERS, Block.PATCHES, Block.PATCH_COUNT]] = pointers.ctypes.data, patches.ctypes.data, arrays
        self.block_address, self._room = block.ctypes.data, 0
        self._row, self._block, self._sizes = row.data, block.data, numbers.data
        self._pack_arrays, self._pack_sizes = Struct(f"={arrays}q").pack_into, Struct(f"={sizes}q").pack_into

    def prepare(self, arrays: Sequence[NDArray[Any]], numbers: Sequence[int], tasks: int, kind: int) -> None:
        """Be the call of so many tasks of the kernel on `arrays`, which are held until it has run; `numbers` are its sizes."""
        self._pack_arrays(self._block, 8 * Block.ARRAYS, *map(id, arrays))
        self._pack_sizes(self._sizes, 0, *numbers)
        _PACK_ROW(self._row, 16, tasks, kind)

    def reserve(self, nbytes: int, threads: int) -> None:
        """Give each thread so many bytes of scratch memory, and more for later calls, which may be on a cache that has grown."""
        if nbytes > self._room:
            self._room = 2 * nbytes
            self._scratch = memory.allocate(self._room * threads)
            self._block[Block.SCRATCH], self._block[Block.STRIDE] = memory.address(self._scratch), self._room
