"""docs/ is true: the map names what there is, the page from scratch is quick, and the first changes work as they are written.

The blocks of README and docs/ run in test_readme.py. Those of first_change.md run here, on a copy of the project: a block with a file name
is that file, `diff` is a change of one place, `bash` and `output` are as everywhere.
"""

from __future__ import annotations

import os
from pathlib import Path
import re
import shutil
import time

import pytest

from tests.test_architecture import EVERYTHING, MAY_IMPORT
from tests.test_readme import ROOT, Block, Runner

DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "anycann"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def table_rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its first two lines."""
    section = page.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip().strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_map_has_the_import_table_of_the_architecture() -> None:
    written = {}
    for name, _, imports in table_rows(DOCS / "map.md", "What may import what"):
        written[name.strip("`")] = EVERYTHING if imports == "anything" else frozenset(filter(None, imports.split(", ")))
    assert written == {name: allowed for name, allowed in MAY_IMPORT.items() if name != "__init__"}


@pytest.mark.parametrize("page", ["map.md", "decisions.md", "from_scratch.md", "first_change.md"])
def test_every_file_a_page_names_is_there(page: str) -> None:
    text = FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]*|\w+\.py)`", text))
    assert named
    places = (SOURCE, ROOT, *(path for path in SOURCE.rglob("*") if path.is_dir()))
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_the_page_from_scratch_is_short_and_quick(tmp_path: Path) -> None:
    page = DOCS / "from_scratch.md"
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 200
    runner, begin = Runner(page, tmp_path), time.process_time()  # of the processor: others may use the machine too
    for language, _, text in FENCE.findall(page.read_text(encoding="utf-8")):
        runner.run(Block(language, text, 1))
    assert time.process_time() - begin < 5


class Walk(Runner):
    """Runs the blocks of a walk-through in a copy of the project."""

    def __init__(self, page: Path, folder: Path):
        super().__init__(page, folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "shims"))
        shutil.copy(ROOT / "pyproject.toml", folder)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        assert not path.exists(), f"{name} is there already"
        path.write_text(text)

    def change(self, diff: str) -> None:
        """Add the lines with + after the line before them, which must be there once."""
        lines = diff.splitlines()
        path = self.folder / lines[1].removeprefix("+++ b/")
        at = next(number for number, line in enumerate(lines) if line.startswith("+") and number > 1)
        before = lines[at - 1][1:]
        added = [line[1:] for line in lines[at:]]
        text = path.read_text()
        assert text.count(f"{before}\n") == 1, f"{path.name} has changed: it no longer holds the line\n{before}"
        path.write_text(text.replace(f"{before}\n", "\n".join([before, *added, ""])))

    def _environment(self) -> dict[str, str]:
        paths = [str(self.folder / "src"), str(self.folder), os.environ.get("PYTHONPATH", "")]
        return {**super()._environment(), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.mark.slow
def test_the_first_changes_work_as_they_are_written(tmp_path: Path) -> None:
    page = DOCS / "first_change.md"
    walk = Walk(page, tmp_path)
    content = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(content):
        language, name, text = match.groups()
        if name:
            walk.write(name, text)
        elif language == "diff":
            walk.change(text)
        else:
            walk.run(Block(language, text, content.count("\n", 0, match.start()) + 1))
