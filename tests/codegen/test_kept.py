"""What was decided and written is kept on disk by all that it depends on, and never taken for the answer to another question."""

from __future__ import annotations

import math
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from anycann.codegen import kept, space
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import WinogradSpace
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.support import sources
from anycann.support.errors import InternalError
from anycann.support.records import dataclass
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.expression import Const
from anycann.te.layout import ND

TARGET = by_name("avx2")


@dataclass(frozen=True)
class Held:
    """Equal to one with an equal value."""

    value: object


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache; nothing is checked again; files that an editor has just saved do not matter."""
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ANYCANN_VERIFY", "0")
    monkeypatch.setattr(sources, "_unchanged", bool)
    sources.digest.cache_clear()


def _kernel(repeats: Repeats, factor: float, written: list[float], layouts: dict[str, str] | None = None) -> Kernel:
    x = te.placeholder("x", (5, 7), dtypes.float32)
    outputs = [Output("y", te.compute((5, 7), lambda i, j: x[i, j] * factor))]

    def write() -> Kernel:
        written.append(factor)
        return generate(outputs, layouts or {}, TARGET)

    return repeats.kernel("facts", outputs, layouts or {}, (), write)


def test_another_process_finds_the_kernel_that_was_written() -> None:
    written: list[float] = []
    first, second = (_kernel(Repeats(TARGET, "choices"), 3.0, written) for _ in range(2))
    assert first == second
    assert written == [3.0]


@pytest.mark.parametrize(
    "repeats", [Repeats(by_name("avx512"), "choices"), Repeats(TARGET, "others"), Repeats()], ids=["target", "choices", "nothing told"]
)
def test_other_circumstances_are_other_kernels(repeats: Repeats) -> None:
    written: list[float] = []
    _kernel(Repeats(TARGET, "choices"), 3.0, written)
    _kernel(repeats, 3.0, written)
    assert written == [3.0, 3.0]


def test_another_definition_is_another_kernel() -> None:
    written: list[float] = []
    for factor, layouts in ((3.0, {}), (4.0, {}), (0.0, {}), (-0.0, {}), (3.0, {"x": ND})):
        _kernel(Repeats(TARGET, "choices"), factor, written, layouts)
    assert len(written) == 5


def test_other_sources_are_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []
    for text in ("one", "other"):
        monkeypatch.setattr(sources, "digest", lambda *folders, text=text: text)
        _kernel(Repeats(TARGET, "choices"), 3.0, written)
    assert written == [3.0, 3.0]


def test_nothing_is_kept_once_sources_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []
    monkeypatch.setattr(sources, "_unchanged", lambda files: False)
    for _ in range(2):
        monkeypatch.setattr(sources, "digest", lambda *folders: "known before")
        _kernel(Repeats(TARGET, "choices"), 3.0, written)
    assert written == [3.0, 3.0]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:60] + b"\0" + data[61:]])
def test_what_is_damaged_is_written_again(damage: Any, tmp_path: Path) -> None:
    written: list[float] = []
    kernel = _kernel(Repeats(TARGET, "choices"), 3.0, written)
    for path in [path for path in (tmp_path / "kernels").rglob("*") if path.is_file()]:
        path.write_bytes(damage(path.read_bytes()))
    assert _kernel(Repeats(TARGET, "choices"), 3.0, written) == kernel
    assert written == [3.0, 3.0]


def test_a_kept_kernel_that_is_another_one_is_found_where_kernels_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "key_of", lambda *parts: "ab" * 32)
    _kernel(Repeats(TARGET, "choices"), 3.0, [])
    monkeypatch.setenv("ANYCANN_VERIFY", "1")
    with pytest.raises(InternalError, match="was taken for the kernel of y, which is another one"):
        _kernel(Repeats(TARGET, "choices"), 4.0, [])


def _winograd() -> WinogradSpace:
    return WinogradSpace(ConvolutionShape(1, 64, 64, 1, (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), (56, 56)), TARGET)


def test_a_default_that_took_long_to_find_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "KEPT_FROM_SECONDS", 0.0)
    asked, ask = [], WinogradSpace.default
    monkeypatch.setattr(WinogradSpace, "default", lambda self: asked.append(self) or ask(self))
    tiles = []
    for _ in range(2):
        space._default.cache_clear()
        tiles.append(Choices().tile(_winograd()))
    assert tiles[0] == tiles[1]
    assert len(asked) == 1


def test_a_kept_default_that_is_another_one_is_found_where_kernels_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "KEPT_FROM_SECONDS", 0.0)
    space._default.cache_clear()
    tile = Choices().tile(_winograd())
    space._default.cache_clear()
    monkeypatch.setenv("ANYCANN_VERIFY", "1")
    assert Choices().tile(_winograd()) == tile
    space._default.cache_clear()
    monkeypatch.setattr(WinogradSpace, "point", lambda self, tile: {"other": 1})
    with pytest.raises(InternalError, match="was taken for the default"):
        Choices().tile(_winograd())
    space._default.cache_clear()


def test_equal_questions_have_one_key_and_others_have_another() -> None:
    several = [None, False, 0, 0.0, -0.0, math.inf, "0", b"0", (), (0,), (0, 0), ((0,), 0), frozenset({0}), frozenset(), int, float, "a,b"]
    several += [("a", "b"), ("a,'b'",), dtypes.float32, dtypes.int32, Held(0), Held((0,)), frozenset({"a", "b"}), frozenset({"ab"})]
    keys = [kept.key_of("what", value) for value in several]
    assert None not in keys
    assert len(set(keys)) == len(several)
    assert kept.key_of("what", frozenset({"b", "a"})) == kept.key_of("what", frozenset({"a", "b"}))
    assert kept.key_of("what", "a", "b") != kept.key_of("what", ("a", "b"))


@pytest.mark.parametrize("value", [object(), len, [1], {}, np.float64(1.0), Held(object()), Held(np.zeros(2)), (Const(1, dtypes.int64),)])
def test_what_cannot_be_told_for_certain_has_no_key(value: object) -> None:
    assert kept.key_of("what", value) is None


def test_the_digest_of_sources_is_that_of_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)

    def digest() -> str | None:
        sources.digest.cache_clear()
        sources._files.cache_clear()
        return sources.digest("codegen", "te")

    (tmp_path / "codegen" / "kernels").mkdir(parents=True)
    (tmp_path / "te").mkdir()
    digests = [digest()]
    for place, text in (("codegen/a.py", "x"), ("codegen/a.py", "y"), ("te/b.py", ""), ("codegen/kernels/c.py", "z"), ("te/b.txt", "w")):
        (tmp_path / place).write_text(text)
        digests.append(digest())
    assert digests[0] is None  # no sources, as where only compiled files are installed
    assert digests[-1] == digests[-2]
    assert len(set(digests)) == 5
    sources.digest.cache_clear()
    sources._files.cache_clear()


def test_sources_that_were_changed_while_the_process_runs_have_no_digest(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from anycann.support import sources; sources.PACKAGE = Path(__import__('sys').argv[1])\n"
        "print(sources.digest('te') is not None, sources.are_those_that_run('te'))\n"
        "(sources.PACKAGE / 'te' / 'a.py').write_text('changed')\n"
        "print(sources.digest('te') is not None, sources.are_those_that_run('te'))\n"
        "sources.digest.cache_clear(); print(sources.digest('te') is not None)"
    )
    (tmp_path / "te").mkdir()
    (tmp_path / "te" / "a.py").write_text("as it was")
    time.sleep(1.5)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "False", "False"]
