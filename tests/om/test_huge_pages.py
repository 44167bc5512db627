"""Weights of more than a huge page lie in huge pages: those a session compiles for, and those of a file."""

import io
import itertools
import mmap
from pathlib import Path

import numpy as np
import pytest

from anycann.om.constants import ConstantPool
from anycann.om.growing import GrowingConstants
from anycann.om.model import OfflineModel
from anycann.om.reader import read_offline_model
from anycann.om.writer import write_offline_model
from anycann.support.mapped import HUGE_PAGE_BYTES
from tests.om.models import small_model

needs_huge_pages = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE") or not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="no huge pages here"
)


def wants_huge(address: int) -> bool:
    """True if the system was asked for huge pages at an address of this process."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name:
            first, last = (int(part, 16) for part in name.split("-"))
            inside = first <= address < last
        elif inside and name == "VmFlags:":
            return "hg" in rest.split()
    raise AssertionError(f"{address:#x} is not mapped")


def model_of(weights: np.ndarray) -> OfflineModel:
    made, pool = small_model(), ConstantPool()
    for part in np.array_split(weights, 3):
        pool.add(part)
    return OfflineModel(made.metadata, made.graph, pool)


@needs_huge_pages
def test_constants_of_a_session_lie_in_huge_pages_from_the_second_on():
    block = GrowingConstants(16 * HUGE_PAGE_BYTES).block
    assert not wants_huge(block.ctypes.data)
    assert wants_huge(block.ctypes.data + HUGE_PAGE_BYTES)


@needs_huge_pages
def test_a_file_is_mapped_in_huge_pages(tmp_path):
    weights = np.random.default_rng(3).integers(0, 256, 5_000_001, np.uint8)
    write_offline_model(tmp_path / "model.om", model_of(weights))
    constants = read_offline_model(tmp_path / "model.om").constants
    assert wants_huge(np.frombuffer(constants, np.uint8).ctypes.data)


def test_blocks_are_written_up_to_where_huge_pages_end():
    places = []

    class Noted(io.BytesIO):
        def write(self, data):
            if len(data) > HUGE_PAGE_BYTES // 2:
                places.append((self.tell(), self.tell() + len(data)))
            return super().write(data)

    weights = np.random.default_rng(4).integers(0, 256, 7_000_001, np.uint8)
    file = Noted()
    write_offline_model(file, model_of(weights))
    assert [end % HUGE_PAGE_BYTES for _, end in places[:3]] == [0, 0, 0]
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(places))
    read = np.frombuffer(read_offline_model(file.getvalue()).constants, np.uint8).tobytes()
    assert [part.tobytes() in read for part in np.array_split(weights, 3)] == [True] * 3
