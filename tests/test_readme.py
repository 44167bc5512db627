"""Every code block of the README and of docs/ runs, and the two READMEs say the same.

By its language a block is
- `python`: run; all such blocks of a file share one namespace;
- `bash`: run with `set -euo pipefail`, `anycann` and `python` on PATH;
- `sh`: setting up this machine (environments, whole test runs): not run here, but every script it names must be there;
- `output`: exactly what the block before it printed;
- `json`: data that must parse;
- `text`, `prototxt`, `ini`, `llvm`, `mermaid`: an illustration.

Python and bash blocks run in one folder for each file, which holds links to `examples`, `benchmarks` and `scripts`.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import io
import json
import os
from pathlib import Path
import re
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]
ILLUSTRATIONS = ("text", "prototxt", "ini", "llvm", "mermaid")
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
NEEDS_MODELS = "fetch_models.py"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line of the file where its text begins."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    content = page.read_text(encoding="utf-8")
    return [Block(match[1], match[2], content.count("\n", 0, match.start(2)) + 1) for match in FENCE.finditer(content)]


class Runner:
    """Runs the blocks of one page, in order, in `folder`."""

    def __init__(self, page: Path, folder: Path):
        self.page, self.folder = page, folder
        self.namespace: dict[str, object] = {"__name__": "__main__"}
        self.printed = ""
        for name in ("examples", "benchmarks", "scripts"):
            (folder / name).symlink_to(ROOT / name)

    def run(self, block: Block) -> None:
        where = f"{self.page.name}:{block.line}"
        if block.language == "python":
            self.printed = self._python(block)
        elif block.language == "bash":
            self.printed = self._bash(block, where)
        elif block.language == "output":
            assert self.printed.strip() == block.text.strip(), f"{where} is not what the block before it prints"
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "sh":
            for script in re.findall(r"\bscripts/[\w.]+", block.text):
                assert os.access(ROOT / script, os.X_OK), f"{where} names {script}, which is missing or not executable"
        else:
            assert block.language in ILLUSTRATIONS, f"{where}: language {block.language!r}; accepted: see tests/test_readme.py"

    def _python(self, block: Block) -> str:
        code = compile("\n" * (block.line - 1) + block.text, str(self.page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.namespace)
        return printed.getvalue()

    def _bash(self, block: Block, where: str) -> str:
        script = f"set -euo pipefail\n{block.text}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{where} ended with status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """`anycann` and `python` are this interpreter's, installed or not."""
        tools = self.folder / ".bin"
        tools.mkdir(exist_ok=True)
        for name, module in (("anycann", "-m anycann.tools.cli"), ("python", "")):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (tools / name).chmod(0o755)
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def pages_to_run() -> Iterator[object]:
    for page in PAGES:
        if page.name == "README.zh-CN.md":
            continue  # its blocks are those of README.md, see below
        if page.name == "first_change.md":
            continue  # its blocks change the project, see test_docs.py
        needs_models = any(NEEDS_MODELS in block.text for block in blocks(page) if block.language == "bash")
        yield pytest.param(page, id=page.name, marks=[pytest.mark.models, pytest.mark.slow] if needs_models else [])


@pytest.mark.parametrize("page", list(pages_to_run()))
def test_every_code_block_runs(page: Path, tmp_path: Path) -> None:
    """In a process of its own: a page may register operators or change options."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYTHONIOENCODING": "utf-8"}
    words = [sys.executable, "-W", "error", __file__, str(page)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-6000:]


def run_page(page: Path, folder: Path) -> None:
    """All blocks of a page, in order."""
    runner = Runner(page, folder)
    for block in blocks(page):
        runner.run(block)


def headings(page: Path) -> list[int]:
    """The levels of the headings, in order."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [len(match[1]) for match in re.finditer(r"^(#+) ", text, re.MULTILINE)]


def links(page: Path) -> list[str]:
    """Where links lead, in order, without those between the two READMEs."""
    found = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if not link.startswith("README")]


def test_both_readmes_have_the_same_headings_commands_and_links() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh-CN.md"
    assert headings(english) == headings(chinese)
    assert [(b.language, b.text) for b in blocks(english)] == [(b.language, b.text) for b in blocks(chinese)]
    assert links(english) == links(chinese)
    assert "](README.zh-CN.md)" in english.read_text(encoding="utf-8")
    assert "](README.md)" in chinese.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:|#", link):
            assert (page.parent / link.split("#")[0]).exists(), f"{page.name} links to {link}"


def test_the_readme_begins_with_the_two_commands() -> None:
    first = blocks(ROOT / "README.md")[0]
    assert [line.split()[0] for line in first.text.splitlines() if line] == ["scripts/demo", "scripts/test"]


def test_a_block_that_fails_or_prints_something_else_is_noticed(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "page.md", tmp_path)
    runner.run(Block("python", "x = 1\nprint(x)\n", 1))
    runner.run(Block("output", "1\n", 5))
    runner.run(Block("python", "print(x + 1)\n", 8))
    with pytest.raises(AssertionError, match=r"page\.md:12 is not what the block before it prints"):
        runner.run(Block("output", "3\n", 12))
    with pytest.raises(AssertionError, match=r"page\.md:20 ended with status 1"):
        runner.run(Block("bash", "false | true\necho not reached\n", 20))
    with pytest.raises(AssertionError, match="language 'pyhton'"):
        runner.run(Block("pyhton", "", 1))
    with pytest.raises(AssertionError, match=r"scripts/nothing, which is missing"):
        runner.run(Block("sh", "scripts/nothing\n", 1))
    runner.run(Block("bash", "python -c 'import anycann'\n", 30))


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), Path.cwd())
