"""msprof: a program is profiled from outside, and its tables are found."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from anycann.tools.msprof import main, split_words
from tests.tools.conftest import Process

PROGRAM = """
import sys
import acl
acl.init()
acl.rt.set_device(0)
stream, _ = acl.rt.create_stream()
desc = acl.create_tensor_desc(0, [4], 2)
ptr, _ = acl.rt.malloc(16, 0)
acl.rt.memset(ptr, 16, 0, 16)
buffer = acl.create_data_buffer(ptr, 16)
acl.op.execute("Neg", [desc], [buffer], [desc], [buffer], 0, stream)
acl.rt.synchronize_stream(stream)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("given", ["apart", "in one word"])
def test_a_program_that_never_finalizes_is_profiled_and_its_status_is_passed_on(tmp_path: Path, process: Process, given: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = [str(program), "7"] if given == "apart" else [f"--application={program} 7"]
    done = process("run", "msprof", f"--output={tmp_path / 'out'}", "--task-time=l1", *words)
    assert done.returncode == 7, done.stderr
    (folder,) = (tmp_path / "out").glob("PROF_*")
    assert done.stdout.splitlines()[-1] == f"[INFO] Process profiling data complete. Data is saved in {folder}"
    (table,) = folder.rglob("op_summary_*.csv")
    with table.open(newline="") as file:
        assert [row["OP Type"] for row in csv.DictReader(file)] == ["Neg"]
    assert str(table) in process("run", "msprof", "--export=on", f"--output={folder}").stdout


def test_a_program_without_acl_has_no_profile(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('here')")
    assert main([f"--output={tmp_path}", str(program)]) == 0
    assert capfd.readouterr().out.splitlines()[1:] == [
        "here", "[WARNING] There is no profile: the program did not call acl.init. For torch_npu there is torch_npu.profiler."
    ]  # fmt: skip


def test_options_end_where_the_program_begins() -> None:
    words = ["--aicpu=on", "--output=x", "python3", "a.py", "--output", "y"]
    assert split_words(words) == ({"aicpu": "on", "output": "x"}, ["python3", "a.py", "--output", "y"])


WRONG = {
    "--analyze=on": "msprof --analyze is not there: it is for ranks on several chips",
    "--outputs=x": "msprof has no option --outputs",
    "--export=on": "holds no profile; accepted: a folder PROF_*",
    "nowhere.py": "the script nowhere.py does not exist",
}


@pytest.mark.parametrize(("word", "sentence"), WRONG.items(), ids=list(WRONG))
def test_what_cannot_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([word]) == 1
    assert sentence in capsys.readouterr().err
