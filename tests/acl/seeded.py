"""Programs with mistakes in them: each is run as a process under the sanitizer, and every line with a mark must be found, no other.

`#! kind` marks the line of an error, `#? kind` that of a note. A leak is found at the line that took what is left.
"""

from __future__ import annotations

import atexit
from functools import cache
import json
import os
from pathlib import Path
import re
import subprocess
import sys
from tempfile import TemporaryDirectory

import onnx

import anycann
from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model

BEGIN = """import sys
import threading
import numpy as np
import acl
acl.init()
acl.rt.set_device(0)
folder = sys.argv[1]

def dataset(*sizes):
    made = acl.mdl.create_dataset()
    for size in sizes:
        ptr, _ = acl.rt.malloc(size, 0)
        acl.rt.memset(ptr, size, 1, size)
        acl.mdl.add_dataset_buffer(made, acl.create_data_buffer(ptr, size))
    return made

def address(dataset, index):
    return acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(dataset, index))

def end(*datasets):
    for made in datasets:
        for index in range(acl.mdl.get_dataset_num_buffers(made)):
            buffer = acl.mdl.get_dataset_buffer(made, index)
            acl.rt.free(acl.get_data_buffer_addr(buffer))
            acl.destroy_data_buffer(buffer)
        acl.mdl.destroy_dataset(made)
"""
END = """
acl.rt.reset_device(0)
acl.finalize()
"""
_PACKAGE = Path(next(iter(anycann.__path__)))
_MARK = re.compile(r"#([!?]) (\S+)")


@cache
def _models() -> TemporaryDirectory[str]:
    """A folder with fixed.om (x: float32[2,3] -> y, the same), open.om (float32[n,3]) and gears.om (batches of 1 and 4)."""
    folder = TemporaryDirectory()
    _write(f"{folder.name}/fixed.om", "2", None)
    _write(f"{folder.name}/open.om", "n", None)
    options = CompileOptions(
        gears=({"x": (1, 3)}, {"x": (4, 3)}), arguments={"dynamic_batch_size": "1,4", "input_shape": "x:-1,3"}, input_shapes={"x": (-1, 3)}
    )
    _write(f"{folder.name}/gears.om", "n", options)
    return folder


def _write(path: str, batch: str, options: CompileOptions | None) -> None:
    text = f'<ir_version: 10, opset_import: ["": 20]> g (float[{batch}, 3] x) => (float[{batch}, 3] y) {{ y = Add(x, x) }}'
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name = "add"
    write_offline_model(path, compile_model(model, options))


def check(body: str, folder: Path, begin: str = BEGIN, end: str = END) -> str:
    """Run the program; its findings must be those that it marks. Answers with what it printed on standard error."""
    program, report = folder / "program.py", folder / "findings.json"
    program.write_text(begin + body.strip("\n") + "\n" + end)
    status, printed = _fork(program, report)
    assert status == 0, printed
    found = sorted(_found(finding) for finding in json.loads(report.read_text())["findings"])
    assert found == sorted(_marked(program.read_text())), printed
    return printed


def run(program: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program with `acl` in reach and two devices."""
    command = [sys.executable, str(program), _models().name]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=_environment() | variables, check=False)


def _environment() -> dict[str, str]:
    python_path = os.pathsep.join([str(_PACKAGE / "shims" / "python"), str(_PACKAGE.parent)])
    return {**os.environ, "PYTHONPATH": python_path, "ANYCANN_DEVICES": "2"}


# Imports what takes long, then forks a process for each program that is named on its standard input.
_FORKER = """
import os, runpy, signal, sys
from anycann.acl.namespace import declared
import anycann.acl.sanitizer.watcher
declared()
for line in sys.stdin:
    program, report, models, printed = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0), os.dup2(out, 1), os.dup2(out, 2)
        os.environ |= {"ANYCANN_SANITIZE": "1", "ANYCANN_SANITIZE_JSON": report}
        sys.argv = [program, models]
        runpy.run_path(program, run_name="__main__")
        sys.exit()
    print(os.waitpid(child, 0)[1], flush=True)
"""


@cache
def _forker() -> subprocess.Popen[str]:
    made = subprocess.Popen([sys.executable, "-c", _FORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment())
    atexit.register(made.kill)
    return made


def _fork(program: Path, report: Path) -> tuple[int, str]:
    """Run a program under the sanitizer; answers with how it ended and what it printed."""
    forker, printed = _forker(), program.with_suffix(".txt")
    assert forker.stdin is not None
    assert forker.stdout is not None
    forker.stdin.write("\t".join(map(str, (program, report, _models().name, printed))) + "\n")
    forker.stdin.flush()
    status = int(forker.stdout.readline())
    return status, printed.read_text()


def _found(finding: dict) -> tuple[int, str, str]:  # type: ignore[type-arg]
    return next(iter(finding["places"].values()))["line"], finding["kind"], finding["level"]


def _marked(text: str) -> list[tuple[int, str, str]]:
    levels = {"!": "error", "?": "note"}
    lines = enumerate(text.splitlines(), 1)
    return [(number, kind, levels[sign]) for number, line in lines for sign, kind in _MARK.findall(line)]
