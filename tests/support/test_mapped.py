"""Pages of mapped weights are given back and come again; other memory is left alone."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from anycann.support.mapped import forget_pages


def resident_kib() -> int:
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile")).split()[1])


def test_forgotten_pages_of_a_file_leave_memory_and_read_the_same_again(tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, 8 << 20, np.uint8)
    (tmp_path / "weights").write_bytes(data.tobytes())
    with (tmp_path / "weights").open("rb") as file:
        view = np.frombuffer(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), np.uint8)
    part = view[1000:-1000].view(np.int8).reshape(2, -1)
    before = int(part.astype(np.int64).sum())
    full = resident_kib()
    assert forget_pages(part)
    assert resident_kib() < full - 6 * 1024
    assert int(part.astype(np.int64).sum()) == before


def test_anonymous_memory_keeps_its_content() -> None:
    written = np.frombuffer(mmap.mmap(-1, 1 << 16), np.uint8)
    written[:] = 7
    own = np.full(1 << 16, 7, np.uint8)
    assert not forget_pages(written)
    assert not forget_pages(own)
    assert (written == 7).all()
    assert (own == 7).all()
