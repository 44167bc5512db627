"""The cache folder: private, where the environment says, replaced by a temporary one when it can't serve."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

from anycann.support.cache import cache_folder
from anycann.support.errors import DeviceError, UsageError


def test_the_folder_is_made_private(monkeypatch, tmp_path):
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path / "a" / "cache"))
    folder = cache_folder("kernels", "x86")
    assert folder == tmp_path / "a" / "cache" / "kernels" / "x86"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3


def test_the_default_is_in_the_xdg_cache_folder_then_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("ANYCANN_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "anycann"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_folder() == tmp_path / ".cache" / "anycann"


def assert_refused(caplog: pytest.LogCaptureFixture, wanted: Path, reason: str) -> None:
    folder = cache_folder("kernels")
    assert wanted not in folder.parents
    assert folder.is_dir()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert cache_folder("kernels") == folder
    (record,) = caplog.records
    assert f"cache folder {wanted} is not used" in record.getMessage()
    assert reason in record.getMessage()


def test_a_folder_others_can_write_to_is_not_used(monkeypatch, tmp_path, caplog):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(shared))
    assert_refused(caplog, shared, "other users can write to it")
    assert os.listdir(shared) == []


def test_a_file_in_place_of_the_folder_is_not_fatal(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path / "file"))
    assert_refused(caplog, tmp_path / "file", "it can't be made")


def test_a_folder_of_another_user_is_not_used(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert_refused(caplog, tmp_path, "not to user 4242")


def test_the_temporary_folder_goes_when_its_process_ends_but_not_with_a_child(tmp_path):
    code = """
import os, sys
from anycann.support.cache import cache_folder
folder = cache_folder()
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(folder, folder.is_dir())
"""
    (tmp_path / "file").write_bytes(b"")
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "ANYCANN_CACHE_DIR": str(tmp_path / "file" / "cache")}
    output = subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=600, capture_output=True, text=True)
    folder, alive = output.stdout.split()
    assert alive == "True"
    assert not Path(folder).exists()


@pytest.mark.parametrize("part", ["..", "", "a/b", "."])
def test_a_part_must_be_a_plain_name(monkeypatch, tmp_path, part):
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="accepted: one plain name"):
        cache_folder(part)


def test_a_part_that_is_a_file_names_it(monkeypatch, tmp_path):
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels").write_bytes(b"")
    with pytest.raises(DeviceError, match=r"can't make .*kernels: file exists"):
        cache_folder("kernels")
