"""What is written is read again; nothing but whole files appears."""

from dataclasses import replace
import os
from pathlib import Path
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from anycann.om import format
from anycann.om.constants import ConstantPool
from anycann.om.model import OfflineModel, input_key
from anycann.om.plan import Buffer, TensorSpec
from anycann.om.reader import is_offline_model, read_offline_model
from anycann.om.writer import write_offline_model
from anycann.support.errors import DeviceError, InternalError, ModelError, UsageError
from tests.om.files import contents, file_bytes, seal
from tests.om.models import SYMBOLS, TARGET, WEIGHTS, program, small_model

SAMPLES = Path(__file__).parent / "samples"


def assert_same(read: OfflineModel, made: OfflineModel) -> None:
    assert read.metadata == made.metadata
    assert read.graph == made.graph
    assert dict(read.programs) == dict(made.programs)
    assert {name: (region.graph, dict(region.programs)) for name, region in read.regions.items()} == {
        name: (region.graph, dict(region.programs)) for name, region in made.regions.items()
    }
    np.testing.assert_array_equal(read.constants, made.constants)


def test_a_file_holds_what_was_written(tmp_path):
    write_offline_model(tmp_path / "model.om", small_model())
    read = read_offline_model(tmp_path / "model.om")
    assert_same(read, small_model())
    assert read.trusted_code(TARGET) == SYMBOLS
    assert read.trusted_code("another") is None
    assert os.listdir(tmp_path) == ["model.om"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_model_is_read_from_memory_too(kind):
    read = read_offline_model(kind(file_bytes(small_model())))
    assert_same(read, small_model())
    assert read.trusted_code(TARGET) == SYMBOLS
    assert read.constants.ctypes.data % 64 == 0


def test_constants_of_a_file_are_mapped_aligned_and_read_only(tmp_path):
    write_offline_model(tmp_path / "model.om", small_model())
    constants = read_offline_model(tmp_path / "model.om").constants
    assert constants.ctypes.data % 4096 == 0
    with pytest.raises(ValueError, match="read-only"):
        constants[0] = 1
    del constants
    assert not any(str(tmp_path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_mapped_model_survives_the_replacement_of_its_file(tmp_path):
    write_offline_model(tmp_path / "model.om", small_model())
    read = read_offline_model(tmp_path / "model.om")
    (tmp_path / "empty").write_bytes(b"")
    os.replace(tmp_path / "empty", tmp_path / "model.om")
    assert_same(read, small_model())


def test_all_gears_share_one_copy_of_the_weights():
    read = read_offline_model(file_bytes(small_model()))
    weights = {task.arguments[1] for p in read.programs.values() for task in p.steps[0].tasks[:1]}
    assert weights == {Buffer("constants", 0, WEIGHTS.nbytes)}
    assert read.constants.nbytes < 1.01 * WEIGHTS.nbytes + 128


def test_the_same_model_gives_the_same_bytes_from_a_pool_and_from_an_array():
    assert file_bytes(small_model()) == file_bytes(small_model()) == file_bytes(small_model(ConstantPool()))


def test_a_model_written_twice_into_one_stream_stays_readable(tmp_path):
    with open(tmp_path / "two", "wb") as file:
        write_offline_model(file, small_model())
        middle = file.tell()
        write_offline_model(file, small_model())
    data = (tmp_path / "two").read_bytes()
    assert data[:middle] == data[middle:]
    assert_same(read_offline_model(data[middle:]), small_model())


def test_a_model_without_programs_weights_or_code_is_a_model():
    made = small_model()
    bare = OfflineModel(made.metadata, made.graph, np.empty(0, np.uint8))
    read = read_offline_model(file_bytes(bare))
    assert_same(read, bare)
    assert read.trusted_code(TARGET) is None


def test_files_of_every_version_still_load():
    """Samples are written once, by the first writer of a version, and never again."""
    assert sorted(path.name for path in SAMPLES.glob("*.om")) == [f"v{version}.om" for version in range(1, format.VERSION + 1)]
    for path in SAMPLES.glob("*.om"):
        read = read_offline_model(path)
        assert_same(read, small_model())
        assert read.trusted_code(TARGET) is None


def test_writing_holds_no_second_copy_of_the_weights(tmp_path):
    pool = ConstantPool()
    pool.add(np.arange(12_000_000, dtype=np.float32))
    made = small_model()
    model = OfflineModel(made.metadata, made.graph, pool)
    tracemalloc.start()
    try:
        write_offline_model(tmp_path / "model.om", model)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "model.om").stat().st_size > 48_000_000
    assert peak < 4_000_000


CHILD = """
import os, resource, signal, sys, time
sys.path.insert(0, os.getcwd())
from anycann.om.model import OfflineModel
from anycann.om.writer import write_offline_model
from anycann.support.errors import AnyCANNError
from tests.om.models import small_model
made = small_model()
"""
SLOW = """
class Slow:
    nbytes = 1 << 24
    def pieces(self):
        yield memoryview(bytes(1 << 23))
        print("half", flush=True)
        time.sleep(600)
write_offline_model(sys.argv[1], OfflineModel(made.metadata, made.graph, Slow()))
"""
LIMITED = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    write_offline_model(sys.argv[1], made)
except AnyCANNError as error:
    print(type(error).__name__, error)
"""


def child(code: str, path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    root = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-c", CHILD + code, str(path)], env=environment, cwd=root, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("before", [None, b"old"])
def test_killed_in_the_middle_of_writing_it_leaves_no_half_file(tmp_path, before):
    place = tmp_path / "model.om"
    if before is not None:
        place.write_bytes(before)
    with child(SLOW, place) as process:
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    assert (place.read_bytes() if place.exists() else None) == before
    write_offline_model(place, small_model())
    assert os.listdir(tmp_path) == ["model.om"]


def test_a_disk_that_fills_up_is_a_device_error_that_names_the_file(tmp_path):
    place = tmp_path / "model.om"
    with child(LIMITED, place) as process:
        assert process.stdout.read() == f"DeviceError can't write {place}: the file is larger than allowed here\n"
    assert os.listdir(tmp_path) == []


def test_a_missing_file_or_folder_is_the_callers_mistake(tmp_path):
    with pytest.raises(UsageError, match=r"can't read .*absent.om: no such file or directory"):
        read_offline_model(tmp_path / "absent.om")
    with pytest.raises(UsageError, match=r"can't read .*: is a directory"):
        read_offline_model(tmp_path)
    with pytest.raises(UsageError, match=r"can't write .*absent/model.om: no such file or directory"):
        write_offline_model(tmp_path / "absent" / "model.om", small_model())


def test_a_file_that_may_not_be_read_is_a_device_error(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "model.om").write_bytes(b"")
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DeviceError, match=r"can't read .*model.om: permission denied"):
        read_offline_model(tmp_path / "model.om")


def test_the_start_of_a_file_tells_an_offline_model():
    data = file_bytes(small_model())
    assert is_offline_model(data[:8])
    assert not is_offline_model(data[:7])
    assert not is_offline_model(b"\x08\x0a\x12\x07pytorch")


def test_a_program_that_no_reader_would_accept_is_not_written(tmp_path):
    made = small_model()
    outside = program(1, Buffer("constants", 64, WEIGHTS.nbytes))
    with pytest.raises(InternalError, match=r"the compiled model is inconsistent: program 'p': .*leaves its space"):
        write_offline_model(tmp_path / "model.om", replace(made, programs={"p": outside}))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["metadata", "graph", "programs", "constants"])
def test_a_missing_section_is_named(name):
    parts = contents(file_bytes(small_model()))
    del parts[name]
    with pytest.raises(ModelError, match=f"has no section {name}; accepted: metadata, graph, programs, constants"):
        read_offline_model(seal(parts))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", 3, "'name' is 3; accepted: text"),
        ("inputs", None, "'inputs' is None; accepted: an array"),
        ("inputs", [{"name": "x"}], r"inputs\[0\]: TensorSpec is without dtype, shape"),
        ("outputs", [{"name": "y", "dtype": "float32", "shape": [-1]}], r"outputs\[0\]: TensorSpec.shape\[0\] is -1"),
        ("outputs", [{"name": "y", "dtype": "float32", "shape": []}] * 2, "accepted: each name once"),
    ],
)
def test_metadata_of_another_kind_are_refused(key, value, message):
    made = small_model()
    with pytest.raises(InternalError, match=message):
        file_bytes(OfflineModel({**made.metadata, key: value}, b"", made.constants))


def test_an_input_key_names_types_and_shapes():
    assert input_key((TensorSpec("x", "float32", (1, 3)), TensorSpec("n", "int64", ()))) == "float32[1,3];int64[]"
    with pytest.raises(ValueError, match="open sizes"):
        input_key((TensorSpec("x", "float32", ("batch",)),))


PEAK = """
import sys
from pathlib import Path
from anycann.om.reader import read_offline_model

def peak_bytes():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

before = peak_bytes()
model = read_offline_model(sys.argv[1])
print(peak_bytes() - before, model.constants.nbytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_checking_weights_takes_memory_for_a_piece_of_them(tmp_path):
    pool = ConstantPool()
    pool.add(np.arange(16 << 20, dtype=np.uint64))
    write_offline_model(tmp_path / "big.om", replace(small_model(pool), constants=pool))
    done = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path / "big.om")], capture_output=True, text=True, check=True)
    grown, constants = map(int, done.stdout.split())
    assert constants > 128 << 20
    assert grown < 64 << 20
