"""The constant pool: aligned, with slack, each content once, not copied before it must be."""

import io
import itertools
import mmap
from pathlib import Path
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
import ml_dtypes
import numpy as np
import pytest

from anycann.om import checksum
from anycann.om.constants import ConstantPool, aligned_empty
from anycann.om.growing import GrowingConstants
from anycann.om.plan import Buffer
from anycann.support.errors import InternalError
from tests.support.test_mapped import resident_kib


def content(block: np.ndarray, buffer: Buffer) -> bytes:
    return block[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes].tobytes()


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(0, 300), max_size=12))
def test_every_constant_is_aligned_with_slack_after_it(sizes):
    pool = ConstantPool()
    arrays = [np.full(size, number + 1, np.uint8) for number, size in enumerate(sizes)]
    buffers = [pool.add(array) for array in arrays]
    pieces = b"".join(pool.pieces())
    block = pool.finish()
    assert block.tobytes() == pieces
    assert block.ctypes.data % 64 == 0 or not block.nbytes
    covered = np.zeros(block.nbytes, bool)
    for array, buffer in zip(arrays, buffers, strict=True):
        assert buffer.offset_bytes % 64 == 0
        assert content(block, buffer) == array.tobytes()
        assert buffer.offset_bytes + buffer.nbytes + 64 <= block.nbytes
        assert not block[buffer.offset_bytes + buffer.nbytes :][:64].any()
        covered[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes] = True
    assert not block[~covered].any()


def test_equal_content_is_kept_once_whatever_its_type():
    pool = ConstantPool()
    first = pool.add(np.arange(100, dtype=np.float32))
    assert pool.add(np.arange(100, dtype=np.float32).reshape(10, 10)) == first
    assert pool.add(np.arange(100, dtype=np.float32).view(np.int32)) == first
    assert pool.add(np.arange(99, dtype=np.float32)) != first
    assert pool.nbytes == 512 + 512


@pytest.mark.parametrize("make", [ConstantPool, lambda: GrowingConstants(1 << 28)])
@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 20_000), data=st.data())
def test_one_differing_byte_anywhere_makes_another_constant(make, size, data):
    pool = make()
    array = np.arange(size, dtype=np.uint64).view(np.uint8)
    other = array.copy()
    other[data.draw(st.integers(0, array.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    first, second = pool.add(array), pool.add(other)
    assert first != second
    assert (pool.add(array.copy()), pool.add(other.copy())) == (first, second)


@pytest.mark.parametrize(
    "array",
    [
        np.float32(3.5).reshape(()),
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.broadcast_to(np.float32([1, 2]), (5, 2)),
        np.arange(10, dtype=np.int16)[::-2],
        np.arange(6, dtype=ml_dtypes.bfloat16),
        np.array([True, False]),
        np.arange(3, dtype=np.complex64),
        np.empty((0, 7), np.float64),
    ],
)
def test_elements_are_stored_in_row_major_order(array):
    pool = ConstantPool()
    buffer = pool.add(array)
    assert content(pool.finish(), buffer) == array.tobytes()


def test_big_endian_numbers_become_little_endian():
    pool = ConstantPool()
    buffer = pool.add(np.arange(5, dtype=">i4"))
    assert content(pool.finish(), buffer) == np.arange(5, dtype="<i4").tobytes()


@pytest.mark.parametrize("array", [np.array(["a"], object), np.array(["text"]), np.array([b"bytes"])])
def test_what_is_no_number_is_refused(array):
    with pytest.raises(InternalError, match=r"can't be a constant of native code"):
        ConstantPool().add(array)


def test_arrays_are_not_copied_until_the_pool_is_finished_and_let_go_then():
    weights = np.ones(8_000_000, np.float32)
    tracemalloc.start()
    try:
        pool = ConstantPool()
        pool.add(weights)
        assert sum(len(piece) for piece in pool.pieces()) == pool.nbytes
        assert tracemalloc.get_traced_memory()[1] < 100_000
        pool.finish()
    finally:
        tracemalloc.stop()
    with pytest.raises(InternalError, match="finished"):
        pool.add(weights)
    with pytest.raises(InternalError, match="handed over"):
        pool.finish()


def test_fresh_memory_is_aligned():
    assert all(aligned_empty(size).ctypes.data % 64 == 0 and aligned_empty(size).nbytes == size for size in (1, 64, 1000))


@settings(max_examples=60, deadline=None)
@given(data=st.integers(0, 400_000), cuts=st.lists(st.integers(0, 400_000), max_size=6), kind=st.sampled_from(list(checksum.NAMES)))
def test_a_checksum_does_not_depend_on_how_content_is_cut(data, cuts, kind):
    whole = np.random.default_rng(data).integers(0, 256, data, dtype=np.uint8)
    total = checksum.checksum(kind)
    borders = [0, *sorted(min(cut, data) for cut in cuts), data]
    for start, end in itertools.pairwise(borders):
        total.update(whole[start:end].data)
    assert total.digest() == checksum.digest_of(kind, whole.data)


def test_block_sums_are_what_the_document_says():
    data = np.random.default_rng(1).integers(0, 256, 65536 + 12, dtype=np.uint8).tobytes()
    from hashlib import blake2b

    expected = blake2b(digest_size=32)
    padded = io.BytesIO(data.ljust(2 * 65536, b"\0"))
    for _ in range(2):
        words = np.frombuffer(padded.read(65536), "<u8").tolist()
        exclusive_or = 0
        for word in words:
            exclusive_or ^= word
        expected.update((sum(words) % 2**64).to_bytes(8, "little") + exclusive_or.to_bytes(8, "little"))
    expected.update(len(data).to_bytes(8, "little"))
    assert checksum.digest_of(checksum.BLOCK_SUMS, data) == expected.digest()


@pytest.mark.parametrize("harm", ["flip", "swap blocks", "drop zeros", "add zeros"])
def test_block_sums_notice_harm(harm):
    data = bytearray(np.random.default_rng(2).integers(0, 256, 3 * 65536, dtype=np.uint8).tobytes() + bytes(100))
    before = checksum.digest_of(checksum.BLOCK_SUMS, bytes(data))
    if harm == "flip":
        data[70000] ^= 0x80
    elif harm == "swap blocks":
        data[:131072] = data[65536:131072] + data[:65536]
    elif harm == "drop zeros":
        del data[-1:]
    else:
        data += bytes(8)
    assert checksum.digest_of(checksum.BLOCK_SUMS, bytes(data)) != before


def test_a_weight_of_a_file_is_copied_without_being_in_memory_twice(tmp_path: Path) -> None:
    data = np.random.default_rng().integers(0, 256, 16 << 20, np.uint8)
    (tmp_path / "weights").write_bytes(data.tobytes())
    with (tmp_path / "weights").open("rb") as file:
        view = np.frombuffer(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), np.float32)
    constants = GrowingConstants(1 << 28)
    before = resident_kib()
    assert content(constants.block, constants.add(view.reshape(64, -1))) == data.tobytes()
    assert resident_kib() < before + 8 * 1024
