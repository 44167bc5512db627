"""`anycann run --sanitize` and its file and exit status."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tools.conftest import Process

GOOD = "import acl\nacl.init()\nacl.finalize()\n"
BAD = "import acl\nacl.init()\nacl.rt.free(0)\nacl.finalize()\n"


def test_findings_are_printed_and_written_and_set_the_exit_status(process: Process, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    done = process("run", "--sanitize", "--sanitize-json", tmp_path / "found.json", "--sanitize-exitcode", 9, tmp_path / "bad.py")
    assert done.returncode == 9
    assert f"error: null-value: acl.rt.free: ptr is null\n    here       {tmp_path}/bad.py:3 in <module>: acl.rt.free(0)\n" in done.stderr
    (finding,) = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert (finding["kind"], finding["places"]["here"]["line"], finding["count"]) == ("null-value", 3, 1)


def test_a_program_without_mistakes_keeps_its_exit_status(process: Process, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD + "raise SystemExit(3)\n")
    done = process("run", "--sanitize-exitcode", 9, tmp_path / "good.py")
    assert (done.returncode, done.stderr) == (3, "AnyCANN sanitizer: 0 errors, 0 notes\n")


def test_a_program_that_does_not_use_acl_runs_all_the_same(process: Process, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("print('hello')\n")
    done = process("run", "--sanitize-exitcode", 9, tmp_path / "other.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
