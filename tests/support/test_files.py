"""A file appears whole or not at all, whatever happens while it is written."""

import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from anycann.support.errors import DeviceError, UsageError
from anycann.support.files import atomic_write, folder_of, forget_content, write_whole


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True)


def test_the_new_content_replaces_the_old_and_nothing_else_remains(tmp_path):
    place = tmp_path / "model.om"
    place.write_bytes(b"old")
    write_whole(place, b"new")
    assert place.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["model.om"]


def test_an_error_while_writing_keeps_the_old_content(tmp_path):
    place = tmp_path / "model.om"
    place.write_bytes(b"old")

    def write_and_fail() -> None:
        with atomic_write(place) as file:
            file.write(b"new")
            assert place.read_bytes() == b"old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert place.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.om"]


def test_the_mode_is_cut_by_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "open", b"")
        write_whole(tmp_path / "closed", b"", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0o600


def test_a_link_keeps_pointing_to_the_file_that_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there/real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "real").read_bytes() == b"new"


def test_a_killed_writer_leaves_the_old_content_and_the_next_one_clears_up(tmp_path):
    place = tmp_path / "model.om"
    place.write_bytes(b"old")
    code = """
import sys, time
from anycann.support.files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half" * 100000); file.flush(); print("half", flush=True); time.sleep(600)
"""
    with child(code, str(place)) as process:
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    assert place.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    write_whole(place, b"new")
    assert place.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["model.om"]


def test_a_living_writer_is_not_taken_for_a_leftover(tmp_path):
    place = tmp_path / "model.om"
    with atomic_write(place) as slow:
        slow.write(b"slow")
        write_whole(place, b"quick")
        assert place.read_bytes() == b"quick"
    assert place.read_bytes() == b"slow"
    assert os.listdir(tmp_path) == ["model.om"]


def test_many_processes_writing_one_file_leave_one_whole_content(tmp_path):
    place = tmp_path / "cached"
    code = """
import sys
from anycann.support.files import write_whole
for _ in range(60):
    write_whole(sys.argv[1], sys.argv[2].encode() * 5000)
"""
    writers = [child(code, str(place), letter) for letter in "abc"]
    deadline = time.monotonic() + 600
    while any(writer.poll() is None for writer in writers):
        assert time.monotonic() < deadline
        if place.exists():
            content = place.read_bytes()
            assert len(content) == 5000
            assert len(set(content)) == 1
    for writer in writers:
        writer.stdout.close()
        assert writer.returncode == 0
    assert os.listdir(tmp_path) == ["cached"]


def test_a_full_disk_is_a_device_error_that_names_the_file(tmp_path):
    code = """
import resource, signal, sys
from anycann.support.errors import DeviceError
from anycann.support.files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_whole(sys.argv[1], b"x" * 1000000)
except DeviceError as error:
    print(error)
"""
    with child(code, str(tmp_path / "model.om")) as process:
        text = process.stdout.read()
    assert text == f"can't write {tmp_path / 'model.om'}: the file is larger than allowed here\n"
    assert os.listdir(tmp_path) == []


def test_a_really_full_disk_is_a_device_error_that_says_so(tmp_path):
    def write_to_the_full_device() -> None:
        with open("/dev/full", "wb") as full, atomic_write(place) as file:
            os.dup2(full.fileno(), file.fileno())
            file.write(b"x" * 100000)

    place = tmp_path / "model.om"
    with pytest.raises(DeviceError, match=r"can't write .*model.om: the disk is full"):
        write_to_the_full_device()
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_the_callers_mistake(tmp_path):
    with pytest.raises(UsageError, match=r"can't write .*absent/model.om: no such file or directory"):
        write_whole(tmp_path / "absent" / "model.om", b"")


def test_a_folder_or_a_device_is_not_replaced(tmp_path):
    for place in (tmp_path, Path("/dev/null")):
        with pytest.raises(UsageError, match="is not a regular file"):
            write_whole(place, b"")


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["not written", "not entered"])
def test_a_folder_that_may_not_be_used_is_a_device_error(mode, tmp_path):
    code = """
import os, sys
from anycann.support.errors import DeviceError
from anycann.support.files import write_whole
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    write_whole(sys.argv[1], b"")
except DeviceError as error:
    print(error)
"""
    closed = tmp_path / "closed"
    closed.mkdir(mode=mode)
    for folder in closed.parents:
        if not folder.stat().st_mode & 0o001 and folder.stat().st_uid == os.geteuid():
            folder.chmod(0o755)
    with child(code, str(closed / "model.om")) as process:
        assert process.stdout.read() == f"can't write {closed / 'model.om'}: permission denied\n"


def test_an_error_of_another_file_is_not_blamed_on_this_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), atomic_write(tmp_path / "model.om"):
        (tmp_path / "elsewhere").read_bytes()


def opened_in(folder):
    """The files of a folder that this process has open, under the names they had."""
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in names if name.startswith(str(folder))]


def test_writing_leaves_no_file_open(tmp_path):
    for _ in range(3):
        with atomic_write(tmp_path / "model.om"):
            assert len(opened_in(tmp_path)) == 1
        write_whole(tmp_path / "model.om", b"")
    assert opened_in(tmp_path) == []


def test_a_file_whose_memory_was_let_go_is_still_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content" * 10_000)
    forget_content(path)
    assert path.read_bytes() == b"content" * 10_000
    forget_content(tmp_path / "nothing")
    assert os.listdir(tmp_path) == ["file"]


def test_the_folder_of_a_file_lies_where_the_file_is_written(tmp_path):
    (tmp_path / "far/there").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far/there")
    path = f"{tmp_path}/link/../new/file"
    with folder_of(path):
        write_whole(path, b"content")
    assert (tmp_path / "far/new/file").read_bytes() == b"content"
    assert sorted(os.listdir(tmp_path)) == ["far", "link"]
