"""`msprof`: run a program with its AscendCL profiled, and say where the tables are."""

from __future__ import annotations

from collections.abc import Sequence
import os
from pathlib import Path
import shlex
import subprocess
import sys

from anycann.support.errors import AnyCANNError, UsageError, describe
from anycann.tools.run import program_words

_USAGE = "usage: msprof [--output=FOLDER] [--application=COMMAND | COMMAND ...]; msprof --export=on --output=PROF_..."
# They choose which counters of a chip are read, or how tables are cut: a profile here always has every table that it can have.
_NO_EFFECT = """
    type environment storage-limit ascendcl model-execution runtime-api hccl task-time aicpu ai-core aic-mode aic-freq aic-metrics
    sys-hardware-mem sys-hardware-mem-freq l2 ge-api task-memory task-block task-tsfw msproftx mstx-domain-include mstx-domain-exclude
    sys-period sys-devices sys-cpu-profiling sys-cpu-freq sys-profiling sys-sampling-freq sys-pid-profiling sys-pid-sampling-freq
    sys-io-profiling sys-io-sampling-freq sys-interconnection-profiling sys-interconnection-freq dvpp-profiling dvpp-freq
    instr-profiling instr-profiling-freq host-sys host-sys-pid host-sys-usage host-sys-usage-freq python-path summary-format reports
    model-id iteration-id iteration-count clear
"""
_KNOWN = frozenset(_NO_EFFECT.split()) | {"output", "application", "export", "help"}
_AT_ONCE, _WHOLE = "a profile is written as tables at once", "a program is profiled from acl.init to its end"
_REFUSED = {"query": "the tables are files: look into them", "analyze": "it is for ranks on several chips", "parse": _AT_ONCE,
            "import": _AT_ONCE, "dynamic": _WHOLE, "pid": _WHOLE, "delay": _WHOLE, "duration": _WHOLE}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Answers with the exit status: that of the program where one is run."""
    try:
        options, program = split_words(list(sys.argv[1:] if words is None else words))
        if options.get("export"):
            return _show(Path(options.get("output", ".")))
        command = shlex.split(options["application"]) if "application" in options else program
        if not command:
            print(_USAGE)
            return 0 if "help" in options else 2
        return _profile(command, Path(options.get("output", ".")))
    except AnyCANNError as error:
        print(f"[ERROR] {describe(error)}", file=sys.stderr)
        return 1


def split_words(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options in front, and the program with its own words. Raises UsageError for an option that msprof has not."""
    options: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, _, setting = words.pop(0)[2:].partition("=")
        if name in _REFUSED:
            raise UsageError(f"msprof --{name} is not there: {_REFUSED[name]}")
        if name not in _KNOWN:
            raise UsageError(f"msprof has no option --{name}; {_USAGE}")
        options[name] = setting
    return options, words


def _profile(command: Sequence[str], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob("PROF_*"))
    print("[INFO] Start profiling....", flush=True)
    environment = {**os.environ, "ANYCANN_PROFILE": str(folder.resolve())}
    ended = subprocess.run(program_words(command, environment.get("PATH", "")), env=environment, check=False).returncode
    written = sorted(set(folder.glob("PROF_*")) - before)
    for path in written:
        print(f"[INFO] Process profiling data complete. Data is saved in {path.resolve()}")
    if not written:
        print("[WARNING] There is no profile: the program did not call acl.init. For torch_npu there is torch_npu.profiler.")
    return ended if ended >= 0 else 128 - ended


def _show(folder: Path) -> int:
    """`--export`: what it makes of raw data is there already."""
    tables = sorted(folder.rglob("mindstudio_profiler_output/*"))
    if not tables:
        raise UsageError(f"{folder} holds no profile; accepted: a folder PROF_* that msprof or acl.prof wrote, or one above")
    print("\n".join(f"[INFO] {path}" for path in tables))
    return 0
