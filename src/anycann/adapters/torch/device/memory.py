"""How much memory the npus hold: `torch.npu.memory_allocated` and its like.

The numbers are exact: each block of memory is counted when it becomes an npu's and when it is freed (`native.py`). Bytes are rounded up to
512 for each block, as on Ascend; `requested_bytes` are not. Freed memory goes back to the system at once, so what is reserved is what is
allocated, and there is no cache to empty.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
import contextlib
import ctypes
import gc
import itertools
import os
from pathlib import Path
import pickle
from typing import Any

import torch

from anycann.adapters.torch.device import accounts, devices
from anycann.adapters.torch.device.accounts import PEAK, TOTAL, UNLIMITED, Field
from anycann.adapters.torch.device.properties import memory_limit, total_memory

_GROUPS = {"allocated_bytes": Field.ALLOCATED, "reserved_bytes": Field.ALLOCATED, "active_bytes": Field.ALLOCATED,
           "requested_bytes": Field.REQUESTED, "allocation": Field.BLOCKS, "active": Field.BLOCKS, "segment": Field.BLOCKS}  # fmt: skip
_NOTHING = ("inactive_split", "inactive_split_bytes")
_POOLS = ("all", "large_pool", "small_pool")


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors of an npu hold."""
    return accounts.read(devices.index_of(device), Field.ALLOCATED)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors of an npu held since the start, or since `reset_peak_memory_stats`."""
    return accounts.read(devices.index_of(device), Field.ALLOCATED + PEAK)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the system for an npu: those its tensors hold."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken from the system for an npu."""
    return max_memory_allocated(device)


# The names before PyTorch 1.4
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin the peaks again from what is held now."""
    index = devices.index_of(device)
    for field in (Field.ALLOCATED, Field.REQUESTED, Field.BLOCKS):
        accounts.write(index, field + PEAK, accounts.read(index, field))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Begin the sums of what was allocated and freed again: what is held now counts as allocated."""
    index = devices.index_of(device)
    for field in (Field.ALLOCATED, Field.REQUESTED, Field.BLOCKS):
        accounts.write(index, field + TOTAL, accounts.read(index, field))
    accounts.write(index, Field.OUT_OF_MEMORY, 0)


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """The statistics of an npu: quantity, pool, and current, peak, allocated, freed. Empty if memory is not counted."""
    index = devices.index_of(device)
    stats: dict[str, Any] = {name: _pools(index, field) for name, field in _GROUPS.items()}
    stats |= {name: {pool: dict.fromkeys(("current", "peak", "allocated", "freed"), 0) for pool in _POOLS} for name in _NOTHING}
    stats |= {"num_alloc_retries": 0, "num_ooms": accounts.read(index, Field.OUT_OF_MEMORY), "max_split_size": -1}
    return stats


def _pools(index: int, field: Field) -> dict[str, dict[str, int]]:
    """All blocks count as of the large pool: there is one."""
    current, peak, total = (accounts.read(index, field + word) for word in (0, PEAK, TOTAL))
    numbers = {"current": current, "peak": peak, "allocated": total, "freed": total - current}
    return {"all": numbers, "large_pool": dict(numbers), "small_pool": dict.fromkeys(numbers, 0)}


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """The statistics of an npu by name: `allocated_bytes.all.peak`, `num_ooms`."""
    return OrderedDict(sorted(_flat("", memory_stats_as_nested_dict(device))))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield prefix, value
        return
    for name, inner in value.items():
        yield from _flat(f"{prefix}.{name}" if prefix else name, inner)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics of an npu as a table to print."""
    index = devices.index_of(device)
    stats = memory_stats(index)
    rows = [("Allocated memory", "allocated_bytes"), ("Requested memory", "requested_bytes"), ("NPU reserved memory", "reserved_bytes")]
    rows += [] if abbreviated else [("Allocations", "allocation")]
    line = "|" + "=" * 75 + "|"
    titles = f"PyTorch NPU memory summary, device ID {index}", f"NPU OOMs: {stats['num_ooms']}"
    lines = [line, f"|{titles[0]:^75}|", "|" + "-" * 75 + "|", f"|{titles[1]:^75}|", line]
    lines.append("| Metric              | Cur Usage | Peak Usage | Tot Alloc  | Tot Freed  |".ljust(76) + "|")
    for label, name in rows:
        shown = [_shown(stats[f"{name}.all.{part}"], "bytes" in name) for part in ("current", "peak", "allocated", "freed")]
        lines.append(f"| {label:<20}| {shown[0]:>9} | {shown[1]:>10} | {shown[2]:>10} | {shown[3]:>10} |".ljust(76) + "|")
    return "\n".join([*lines, line, ""])


def _shown(value: int, in_bytes: bool) -> str:
    if not in_bytes:
        return str(value)
    for unit in ("B", "KiB", "MiB"):
        if value < 100 * 1024:
            return f"{value} {unit}"
        value //= 1024
    return f"{value} GiB"


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """The blocks that npus hold, one segment a block: those of tensors that Python sees, and one for the rest of each npu."""
    segments = [_segment(storage.device.index, storage.data_ptr(), storage.nbytes()) for storage in _visible_storages()]
    for index in range(devices.count()):
        rest = accounts.read(index, Field.ALLOCATED) - sum(entry["total_size"] for entry in segments if entry["device"] == index)
        if rest > 0:
            segments.append(_segment(index, 0, rest))
    return segments


def _visible_storages() -> list[Any]:
    found = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.is_npu:
            storage = thing.untyped_storage()
            found[storage._cdata] = storage
    return [storage for storage in found.values() if storage.nbytes()]


def _segment(index: int, address: int, size: int) -> dict[str, Any]:
    rounded = -(-size // 512) * 512
    block = {"size": rounded, "requested_size": size, "address": address, "state": "active_allocated", "frames": []}
    return {"device": index, "address": address, "total_size": rounded, "allocated_size": rounded, "active_size": rounded,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": [], "blocks": [block]}  # fmt: skip


def _snapshot(device: Any = None, **unused: Any) -> dict[str, Any]:
    return {"segments": memory_snapshot(), "device_traces": [[] for _ in range(devices.count())], "allocator_settings": {}}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", **unused: Any) -> None:
    Path(filename).write_bytes(pickle.dumps(_snapshot()))


def _record_memory_history(enabled: Any = "all", *args: Any, **keywords: Any) -> None:
    """Snapshots have the blocks of the moment; where they came from is not recorded."""


def empty_cache() -> None:
    """Give memory that no tensor holds back to the system: it went back already."""


def empty_virt_addr_cache() -> None:
    """Give address ranges back: none are kept."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of an npu: of ANYCANN_DEVICE_MEMORY, or of the machine."""
    total = total_memory()
    if memory_limit() is None:
        return min(total, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")), total
    return max(0, total - memory_allocated(device)), total


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Bound the memory of an npu to a fraction, 0 to 1, of its total. Raises TypeError or ValueError for another fraction."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index = devices.index_of(device)
    unbounded = fraction == 1 and memory_limit() is None
    accounts.write(index, Field.LIMIT, UNLIMITED if unbounded else int(fraction * total_memory()))


def get_per_process_memory_fraction(device: Any = None) -> float:
    """What `set_per_process_memory_fraction` said, 1.0 at the start."""
    limit = accounts.read(devices.index_of(device), Field.LIMIT)
    return 1.0 if limit == UNLIMITED else limit / total_memory()


_raw: dict[int, Any] = {}


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Take `size` bytes of an npu and return their address; give them back with `caching_allocator_delete`."""
    block = torch.empty(size, dtype=torch.uint8, device=torch.device(devices.NAME, devices.index_of(device)))
    _raw[block.data_ptr()] = block
    return int(block.data_ptr())


def caching_allocator_delete(mem_ptr: int) -> None:
    """Give back what `caching_allocator_alloc` returned. Raises ValueError for another address."""
    if _raw.pop(mem_ptr, None) is None:
        raise ValueError(f"caching_allocator_delete: {mem_ptr:#x} was not allocated by caching_allocator_alloc, or was deleted")


def get_allocator_backend() -> str:
    """The allocator: torch's own of the host, called native."""
    return "native"


def _set_allocator_settings(settings: str) -> None:
    """What PYTORCH_NPU_ALLOC_CONF sets: about a cache, and there is none."""


_numbers = itertools.count(1)


class MemPool:
    """A pool of memory: all memory is one here, so a pool is only a name."""

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, **unused: Any):
        self.id = (0, next(_numbers))
        self.allocator = allocator

    def use_count(self) -> int:
        """How many use the pool."""
        return 1

    def snapshot(self) -> list[dict[str, Any]]:
        """The blocks that npus hold."""
        return memory_snapshot(self.id)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """Take memory from `pool` inside the block."""
    devices.index_of(device)
    yield


class NPUPluggableAllocator:
    """An allocator in a library: its two functions must be there; torch's own stays in use.

    Raises OSError or AttributeError if the library or a function is not there.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str):
        library = ctypes.CDLL(path_to_so_file)
        self.functions = getattr(library, alloc_fn_name), getattr(library, free_fn_name)

    def allocator(self) -> NPUPluggableAllocator:
        """What pools take."""
        return self


def change_current_allocator(allocator: NPUPluggableAllocator) -> None:
    """Refused: memory of npus is the host's, and its allocator belongs to torch."""
    raise RuntimeError("the allocator of npus cannot be changed: their memory is the host's, which torch's own allocator gives")


def host_empty_cache() -> None:
    """Give pinned memory that nothing uses back: it went back already."""


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Statistics of pinned memory: it is the host's, and not counted."""
    return {}


def host_memory_stats() -> OrderedDict[str, Any]:
    """Statistics of pinned memory: it is the host's, and not counted."""
    return OrderedDict()


def reset_accumulated_host_memory_stats() -> None:
    """Begin the sums of pinned memory again: there are none."""


def reset_peak_host_memory_stats() -> None:
    """Begin the peaks of pinned memory again: there are none."""


def ipc_collect() -> None:
    """Free memory that other processes let go of: none is shared."""
