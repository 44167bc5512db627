"""The group: help, versions, errors, exit statuses, env, run and doctor."""

from __future__ import annotations

import json
import os
from pathlib import Path
import pstats
import shutil
import signal
import subprocess
import sys
import time

import click
import pytest

from anycann.support.errors import DeviceError, UsageError, context
from anycann.tools import cli
from anycann.tools.env import export_lines, shim_variables
from tests.tools.conftest import SOURCES, Invoke, Process
from tests.tools.models import TINY, save_model


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """A command `fail` that raises `failing["with"]`."""
    raised: dict[str, BaseException] = {}

    @click.command("fail")
    def command() -> None:
        with context("while compiling net.onnx"):
            raise raised["with"]

    known = cli.LazyGroup.get_command
    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda self, ctx, name: command if name == "fail" else known(self, ctx, name))
    monkeypatch.setitem(cli.COMMANDS, "fail", ("fail", "Fails."))
    return raised


def test_help_lists_every_command_and_imports_none(process: Process) -> None:
    code = "import sys, click.testing; from anycann.tools.cli import main; r = click.testing.CliRunner().invoke(main, ['--help']);"
    code += "print(r.output); print('loaded:', sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'onnx', 'llvmlite', 'rich'}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCES)}, check=True
    )
    assert all(f"  {name} " in done.stdout for name in cli.COMMANDS)
    assert "loaded: []" in done.stdout


def test_help_of_every_command_works(invoke: Invoke) -> None:
    for name in cli.COMMANDS:
        result = invoke(name, "--help")
        assert result.exit_code == 0, name
        assert result.stderr == ""


def test_the_version_is_printed(invoke: Invoke) -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("anycann ")


def test_an_unknown_command_is_refused_with_the_nearest(invoke: Invoke) -> None:
    result = invoke("shwo")
    assert result.exit_code == 2
    assert "No such command 'shwo'. Did you mean 'show'?" in result.stderr


def test_an_error_is_printed_with_class_text_and_notes(invoke: Invoke, failing: dict[str, BaseException]) -> None:
    failing["with"] = DeviceError("the disk is full")
    result = invoke("fail")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "DeviceError: the disk is full\n  while compiling net.onnx\n"


def test_wrong_use_ends_with_status_2(invoke: Invoke, failing: dict[str, BaseException]) -> None:
    failing["with"] = UsageError("--resize is 'x'")
    assert invoke("fail").exit_code == 2


def test_an_unexpected_exception_asks_for_a_report(invoke: Invoke, failing: dict[str, BaseException]) -> None:
    failing["with"] = KeyError("lanes")
    result = invoke("fail")
    assert result.exit_code == 1
    assert result.stderr.startswith("InternalError: KeyError: 'lanes'\n")
    assert "please report it" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_traceback_is_shown_on_demand(invoke: Invoke, failing: dict[str, BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    failing["with"] = KeyError("lanes")
    assert "Traceback (most recent call last)" in invoke("--traceback", "fail").stderr
    monkeypatch.setenv("ANYCANN_DEBUG", "1")
    assert "Traceback (most recent call last)" in invoke("fail").stderr


def test_an_interrupt_ends_with_status_130(invoke: Invoke, failing: dict[str, BaseException]) -> None:
    failing["with"] = KeyboardInterrupt()
    result = invoke("fail")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted.\n"


def test_an_interrupted_process_ends_with_status_130(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import time, click\nfrom anycann.tools import cli\n"
        "@click.command('wait')\ndef wait():\n    print('ready', flush=True)\n    time.sleep(600)\n"
        "cli.COMMANDS['wait'] = ('wait', '')\n"
        "known = cli.LazyGroup.get_command\n"
        "cli.LazyGroup.get_command = lambda self, ctx, name: wait if name == 'wait' else known(self, ctx, name)\n"
        "cli.main(['wait'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCES)}, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        assert child.wait(600) == 130


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "at the end\nended with 0\n"),
        ("threading.Thread(target=lambda: time.sleep(0.3) or print('waited')).start()", "waited\nat the end\n"),
    ],
    ids=["nothing runs", "a thread runs"],
)
def test_a_program_ends_at_once_unless_something_is_left_to_wait_for(code: str, said: str) -> None:
    script = (
        "import atexit, os, sys, threading, time\nfrom anycann.tools import cli\n"
        "os._exit = lambda status: print('ended with', status); atexit.register(print, 'at the end')\n"
        f"{code}\nsys.argv = ['anycann', '--version']; cli.run()"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    first, _, rest = done.stdout.partition("\n")
    assert first.startswith("anycann ")
    assert (rest, done.stderr) == (said, "")


def test_a_profiler_has_its_say_at_the_end(tmp_path: Path) -> None:
    words = ["-m", "cProfile", "-o", str(tmp_path / "calls"), "-m", "anycann.tools.cli", "--version"]
    subprocess.run([sys.executable, *words], capture_output=True, env={**os.environ, "PYTHONPATH": str(SOURCES)}, check=True)
    assert any(name == "_print_version" for _, _, name in pstats.Stats(str(tmp_path / "calls")).stats)  # type: ignore[attr-defined]


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_program_whose_caller_closed_its_output_ends_as_any_other(closed: str, tmp_path: Path) -> None:
    model = save_model(TINY, tmp_path / "tiny.onnx")
    program, environment = f"'{sys.executable}' -m anycann.tools.cli", {**os.environ, "PYTHONPATH": str(SOURCES)}
    for words in (f"atc --framework=5 --model={model} --output={tmp_path}/made", f"show {model}"):
        done = subprocess.run(["bash", "-c", f"{program} {words} {closed}"], capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, ""), words


def test_a_reader_that_goes_away_is_no_fault() -> None:
    words = f"'{sys.executable}' -m anycann.tools.cli atc --help | head -n 1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCES)}, check=True)
    assert done.stdout.startswith("usage: atc")
    assert done.stderr == ""


def test_a_conversion_looks_for_no_cycles_and_starts_no_threads_of_a_blas(tmp_path: Path) -> None:
    model = save_model(TINY, tmp_path / "tiny.onnx")
    script = (
        "import atexit, gc, os, sys\nfrom anycann.tools import cli\n"
        "looks = []; gc.callbacks.append(lambda phase, about: looks.append(phase)); gc.collect(); looks.clear()\n"
        "atexit.register(lambda: print('looks', len(looks), 'BLAS', os.environ.get('OPENBLAS_NUM_THREADS')))\n"
        f"sys.argv = ['anycann', 'atc', '--framework=5', '--model={model}', '--output={tmp_path}/made']; cli.run()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == "looks 0 BLAS 1"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**environment, "OPENBLAS_NUM_THREADS": "3"}, check=True
    )
    assert done.stdout.splitlines()[-1] == "looks 0 BLAS 3"


def test_env_puts_the_shims_in_front_once() -> None:
    first = shim_variables({"PATH": "/usr/bin", "PYTHONPATH": "/lib/py"})
    assert first["PATH"].split(os.pathsep)[1:] == ["/usr/bin"]
    assert Path(first["PATH"].split(os.pathsep)[0], "atc").is_file()
    assert first["PYTHONPATH"].endswith(f"shims/python{os.pathsep}/lib/py")
    assert shim_variables(first) == first


def test_lines_of_env_are_quoted_for_each_shell() -> None:
    variables = {"PATH": "/a b:/c'd", "ANYCANN_PYTHON": "/p y"}
    assert export_lines(variables, "sh") == ["export PATH='/a b:/c'\"'\"'d'", "export ANYCANN_PYTHON='/p y'"]
    assert export_lines(variables, "fish") == ["set -gx PATH '/a b' '/c\\'d';", "set -gx ANYCANN_PYTHON '/p y';"]
    assert export_lines(variables, "csh")[1] == "setenv ANYCANN_PYTHON '/p y'"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_takes_the_lines_and_finds_atc(process: Process, shell: str, tmp_path: Path) -> None:
    lines = process("env").stdout
    script = tmp_path / "use.sh"
    script.write_text(f"{lines}\ncd /\natc --modle=x\necho status $?\n")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([shell, script], capture_output=True, text=True, env=bare, check=True)
    assert done.stdout.splitlines() == [
        "ATC start working now, please wait for a moment.",
        "ATC run failed, Please check the detail log, Try 'atc --help' for more information",
        "E10001: Value --modle for parameter atc is invalid. Reason: there is no such option; did you mean --model?",
        "        Solution: Try again with a valid argument.",
        "status 2",
    ]


def test_env_as_json_is_the_same(invoke: Invoke) -> None:
    assert set(json.loads(invoke("env", "--json").stdout)) == {"PATH", "PYTHONPATH", "ANYCANN_PYTHON"}


def test_run_passes_arguments_and_the_exit_status_through(process: Process, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os, shutil, sys; print(sys.argv[1:], os.path.basename(shutil.which('atc'))); sys.exit(7)")
    done = process("run", script, "--help", "-x", "a b")
    assert done.returncode == 7
    assert done.stdout == "['--help', '-x', 'a b'] atc\n"


def test_run_takes_modules_and_commands(process: Process) -> None:
    assert process("run", "-m", "json.tool", "--help").stdout.startswith("usage:")
    done = process("run", "sh", "-c", "command -v atc; exit 3")
    assert done.returncode == 3
    assert done.stdout.endswith("shims/bin/atc\n")


@pytest.mark.parametrize(
    ("words", "text"), [(["nowhere.py"], "does not exist"), (["no-such-command"], "neither"), (["-m"], "name of a module")]
)
def test_run_refuses_what_is_not_there(invoke: Invoke, words: list[str], text: str) -> None:
    result = invoke("run", *words)
    assert result.exit_code == 2
    assert text in result.stderr


def test_doctor_runs_generated_code_and_finds_no_fault(process: Process) -> None:
    done = process("doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True), report
    findings = {finding["subject"]: finding for finding in report["findings"]}
    assert {"Python", "processor", "vector unit", "numpy", "llvmlite", "kernel cache", "self-test"} <= set(findings)
    assert "largest error" in findings["self-test"]["detail"]


def test_doctor_says_when_the_cache_can_not_be_written(process: Process, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = process("doctor", "--json", ANYCANN_CACHE_DIR=str(blocked), ANYCANN_CACHE=str(blocked))
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["kernel cache"]["verdict"] == "warning"


def test_doctor_reports_a_crash_of_generated_code(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    from anycann.tools import doctor

    crash = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"]
    run = subprocess.run
    monkeypatch.setattr(doctor.subprocess, "run", lambda words, **options: run(crash, **options))
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "generated code ended the process with signal 4" in result.stdout


def test_the_shim_is_executable_and_names_no_interpreter_of_this_machine() -> None:
    shim = SOURCES / "anycann" / "shims" / "bin" / "atc"
    assert os.access(shim, os.X_OK)
    assert sys.executable not in shim.read_text()
    assert shutil.which("sh")
