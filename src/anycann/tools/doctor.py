"""`anycann doctor`: is this machine fit, what will be used, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
import json
import os
from pathlib import Path
import platform
import shutil
import subprocess
import sys
from typing import Literal, TypeAlias

import click
from rich.text import Text

from anycann.support.cache import cache_problem
from anycann.support.records import dataclass
from anycann.tools.output import console, format_bytes, json_option, print_json, table

Verdict: TypeAlias = Literal["ok", "warning", "failed"]
SELF_TEST_SECONDS = 120
_FEATURES = (
    "sse4.2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "amx-tile",
    "neon",
    "sve",
    "bf16",
    "dotprod",
)
_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and whether it will do."""

    subject: str
    verdict: Verdict
    detail: str


def examine() -> Iterator[Finding]:
    """All findings, cheap ones first; a check that raises is a finding too."""
    for subject, check in _CHECKS:
        try:
            yield from check()
        except Exception as error:
            yield Finding(subject, "failed", f"{type(error).__name__}: {error}")


def _system() -> Iterator[Finding]:
    new_enough = sys.version_info >= (3, 10)
    detail = f"{platform.python_version()} at {sys.executable}" + ("" if new_enough else "; 3.10 or later is needed")
    yield Finding("Python", "ok" if new_enough else "failed", detail)
    known = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    detail = f"{platform.system()} {platform.release()} on {platform.machine()}"
    yield Finding("system", "ok" if known else "warning", detail + ("" if known else "; tested are Linux on x86_64 and aarch64"))


def _processor() -> Iterator[Finding]:
    from anycann.support.processors import available_processors
    from anycann.target.target import host

    target = host()
    caches = f"L1 {format_bytes(target.l1_bytes)}, L2 {format_bytes(target.l2_bytes)}"
    yield Finding("processor", "ok", f"{_model_name() or target.cpu} ({target.cpu}), {available_processors()} usable cores, {caches}")
    features = ", ".join(name for name in _FEATURES if target.has(name)) or "none known"
    width = f"{target.lanes * 32}-bit vectors (C0 = {target.lanes}), {target.registers} registers"
    narrow = target.is_x86 and target.lanes < 8
    yield Finding("vector unit", "warning" if narrow else "ok", f"{width}; {features}" + ("; slow: no AVX2" if narrow else ""))


def _model_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _memory() -> Iterator[Finding]:
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        free, total = os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
        yield Finding("memory", "ok" if free > 1 << 30 else "warning", f"{format_bytes(free)} free of {format_bytes(total)}")


def _cache() -> Iterator[Finding]:
    from anycann.codegen.kernel_cache import default_cache

    problem = cache_problem()
    if problem:
        yield Finding("kernel cache", "warning", problem)
        return
    cache = default_cache()
    folder = cache.folder
    sizes = [path.stat().st_size for path in folder.glob("??/*")]
    free = shutil.disk_usage(folder).free
    used = f"{len(sizes)} kernels, {format_bytes(sum(sizes))} of {format_bytes(cache.limit_bytes)}"
    yield Finding("kernel cache", "ok" if free > 1 << 28 else "warning", f"{folder}: {used}; {format_bytes(free)} free on disk")


def _packages() -> Iterator[Finding]:
    import llvmlite.binding as llvm

    import anycann
    from anycann.tools.versions import OPTIONAL, REQUIRED, installed_version

    yield Finding("anycann", "ok", anycann.__version__)
    for package in REQUIRED:
        version = installed_version(package)
        extra = f" (LLVM {'.'.join(map(str, llvm.llvm_version_info))})" if package == "llvmlite" else ""
        yield Finding(package, "ok" if version else "failed", f"{version}{extra}" if version else "not installed, and needed")
    for package, purpose in OPTIONAL.items():
        version = installed_version(package)
        yield Finding(package, "ok" if version else "warning", version or f"not installed; only needed for {purpose}")


def _commands() -> Iterator[Finding]:
    from anycann.tools.env import package_folder

    ours, found = package_folder() / "shims" / "bin" / "atc", shutil.which("atc")
    if found is None:
        yield Finding("atc on PATH", "ok", 'none; `eval "$(anycann env)"` puts AnyCANN\'s there')
    elif Path(found).resolve() == ours:
        yield Finding("atc on PATH", "ok", f"AnyCANN's, {found}")
    else:
        yield Finding("atc on PATH", "warning", f'{found} is another one; `eval "$(anycann env)"` puts AnyCANN\'s in front')


def _self_test() -> Iterator[Finding]:
    from anycann.tools.env import child_environment

    words = [sys.executable, "-m", "anycann.tools.self_test"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SELF_TEST_SECONDS, check=False, env=child_environment())
    except subprocess.TimeoutExpired:
        yield Finding("self-test", "failed", f"no end after {SELF_TEST_SECONDS} s")
        return
    if done.returncode < 0:
        yield Finding("self-test", "failed", f"generated code ended the process with signal {-done.returncode}")
    elif done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no text"]
        yield Finding("self-test", "failed", last[0])
    else:
        facts = json.loads(done.stdout.splitlines()[-1])
        compile_ms = 1000 * facts["compile_seconds"]
        yield Finding("self-test", "ok", f"a kernel compiled in {compile_ms:.0f} ms and ran; largest error {facts['largest_error']:.1e}")


_CHECKS: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("system", _system),
    ("processor", _processor),
    ("memory", _memory),
    ("packages", _packages),
    ("kernel cache", _cache),
    ("atc on PATH", _commands),
    ("self-test", _self_test),
)


@click.command("doctor")
@json_option
@click.pass_context
def doctor_command(ctx: click.Context, as_json: bool) -> None:
    """Check the processor, the cache and the installation; status 1 if something needed is missing."""
    findings = list(examine())
    failed = any(finding.verdict == "failed" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    else:
        rows = [(Text(row.verdict, style=_COLOURS[row.verdict]), row.subject, row.detail) for row in findings]
        console().print(table(("", "what", "found"), rows))
    ctx.exit(1 if failed else 0)
