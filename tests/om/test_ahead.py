"""Constants that are written while a model is compiled: the same file, less memory, nothing left of what failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
import errno
import io
import os
from pathlib import Path
import threading
import time
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from anycann.om.ahead import ModelAhead, model_ahead
from anycann.om.constants import ConstantPool
from anycann.om.model import OfflineModel
from anycann.om.plan import Buffer
from anycann.om.reader import read_offline_model
from anycann.support.errors import InternalError, UsageError
from anycann.support.mapped import HUGE_PAGE_BYTES
from tests.om.files import file_bytes
from tests.om.models import SYMBOLS, TARGET, WEIGHTS, program, small_model
from tests.om.test_offline_model import child


def model_of(pool: ConstantPool, sizes: list[int]) -> OfflineModel:
    """A model with constants of these sizes in bytes, one of a size, and code for one target."""
    made = small_model()
    for size in sizes:
        pool.add(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    return OfflineModel(made.metadata, made.graph, pool, code={TARGET: SYMBOLS})


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """No file and no thread more than before."""
    before = sorted(os.listdir(folder)), threading.active_count()
    yield
    assert (sorted(os.listdir(folder)), threading.active_count()) == before


SIZE = st.one_of(
    st.integers(0, 200), st.integers(1, 4).map(lambda pages: pages * HUGE_PAGE_BYTES - 4096), st.integers(1, 5 * HUGE_PAGE_BYTES)
)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(SIZE, max_size=8))
def test_the_file_is_the_one_that_is_written_at_once(tmp_path_factory, sizes):
    folder = tmp_path_factory.mktemp("ahead")
    with nothing_left(folder):
        with model_ahead(folder / "m.om") as ahead:
            ahead.finish(model_of(ahead.pool, sizes))
        assert (folder / "m.om").read_bytes() == file_bytes(model_of(ConstantPool(), sizes))
        (folder / "m.om").unlink()


def wait_for(ahead: ModelAhead, number: int) -> list[int]:
    """Wait until so many constants were let go; their numbers."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        gone = [number for number, piece in enumerate(ahead.pool._pieces.values()) if piece.content is None]
        if len(gone) >= number:
            return gone
        time.sleep(0.01)
    raise AssertionError(f"{len(gone)} constants were let go")


def test_a_constant_is_let_go_once_it_is_in_the_file_and_found_there(tmp_path):
    with model_ahead(tmp_path / "m.om") as ahead:
        arrays = [np.full(HUGE_PAGE_BYTES, value, np.uint8) for value in range(12)]
        buffers = [ahead.pool.add(array) for array in arrays]
        gone = wait_for(ahead, 8)
        assert gone == list(range(len(gone)))
        before = ahead.pool.nbytes
        assert [ahead.pool.add(array) for array in arrays] == buffers
        assert ahead.pool.nbytes == before
        arrays[3][HUGE_PAGE_BYTES // 3] ^= 1  # between the windows by which contents are told apart
        assert ahead.pool.add(arrays[3]).offset_bytes == before
        ahead.finish(model_of(ahead.pool, []))
    written = np.asarray(read_offline_model(tmp_path / "m.om").constants)
    assert [int(written[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes].sum(dtype=np.int64)) for buffer in buffers] == [
        value * HUGE_PAGE_BYTES for value in range(12)
    ]


def test_small_constants_stay_in_memory(tmp_path):
    with model_ahead(tmp_path / "m.om") as ahead:
        for size in (1000, 5 * HUGE_PAGE_BYTES, 1001, 5 * HUGE_PAGE_BYTES + 64):
            ahead.pool.add(np.full(size, 7, np.uint8))
        assert wait_for(ahead, 1) == [1]
        ahead.finish(model_of(ahead.pool, []))


def test_memory_is_used_again(tmp_path):
    tracemalloc.start()
    try:
        with model_ahead(tmp_path / "m.om") as ahead:
            for value in range(40):
                ahead.pool.add(np.full(HUGE_PAGE_BYTES, value, np.uint8))
                wait_for(ahead, value - 9)
            ahead.finish(model_of(ahead.pool, []))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * HUGE_PAGE_BYTES


def fail(model: OfflineModel) -> None:
    raise UsageError("no such operator")


@pytest.mark.parametrize("sizes", [[], [100], [3 * HUGE_PAGE_BYTES] * 3])
def test_a_compilation_that_fails_leaves_nothing(tmp_path, sizes):
    (tmp_path / "m.om").write_bytes(b"old")
    with nothing_left(tmp_path):
        with pytest.raises(UsageError, match="no such operator"), model_ahead(tmp_path / "m.om") as ahead:
            fail(model_of(ahead.pool, sizes))
        assert (tmp_path / "m.om").read_bytes() == b"old"


def test_what_is_given_up_is_not_written_to_its_end():
    go_on = threading.Event()

    class Slow(io.BytesIO):
        def write(self, data):
            go_on.wait(60)
            return super().write(data)

    ahead = ModelAhead(Slow())
    model_of(ahead.pool, [3_000_000 + number for number in range(16)])
    threading.Timer(0.2, go_on.set).start()
    ahead.give_up()
    assert len(ahead._file.getvalue()) < 8_000_000


def test_a_model_that_was_not_finished_is_no_file(tmp_path):
    with nothing_left(tmp_path), pytest.raises(InternalError, match=r"m.om was not finished"), model_ahead(tmp_path / "m.om") as ahead:
        model_of(ahead.pool, [100])


def test_only_the_model_of_these_constants_is_finished(tmp_path):
    for other in (small_model(), model_of(ConstantPool(), [])):
        with nothing_left(tmp_path), pytest.raises(InternalError, match="of another model"), model_ahead(tmp_path / "m.om") as ahead:
            ahead.finish(other)


def test_a_program_that_no_reader_would_accept_is_not_written(tmp_path):
    programs = {"p": program(1, Buffer("constants", 64, WEIGHTS.nbytes))}
    with nothing_left(tmp_path), pytest.raises(InternalError, match="leaves its space"), model_ahead(tmp_path / "m.om") as ahead:
        ahead.finish(replace(model_of(ahead.pool, [64]), programs=programs))


def test_what_went_elsewhere_is_not_given_by_the_pool(tmp_path):
    with model_ahead(tmp_path / "m.om") as ahead:
        ahead.pool.add(WEIGHTS)
        for ask in (lambda: list(ahead.pool.pieces()), ahead.pool.finish):
            with pytest.raises(InternalError, match="handed over"):
                ask()
        ahead.finish(model_of(ahead.pool, []))


def test_a_compilation_whose_file_cannot_be_written_ends_with_the_next_constant(tmp_path):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "no space left")

    ahead = ModelAhead(Full())
    ahead._thread.join(60)
    with pytest.raises(OSError, match="no space left"):
        model_of(ahead.pool, [100])
    ahead.give_up()


LIMITED = """
import numpy as np
from anycann.om.ahead import model_ahead
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    with model_ahead(sys.argv[1]) as ahead:
        for number in range(20):
            ahead.pool.add(np.full(3_000_000, number, np.uint8))
        ahead.finish(OfflineModel(made.metadata, made.graph, ahead.pool, code=made.code))
except AnyCANNError as error:
    print(type(error).__name__, error)
"""


def test_a_disk_that_fills_up_is_a_device_error_that_names_the_file(tmp_path):
    place = tmp_path / "model.om"
    with child(LIMITED, place) as process:
        assert process.stdout.read() == f"DeviceError can't write {place}: the file is larger than allowed here\n"
    assert os.listdir(tmp_path) == []
