"""The kernel cache: what is found again, what is not trusted, and compiling in worker processes that may die."""

from collections.abc import Callable
import logging
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from anycann.codegen import compile_pool, kernel_cache
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel_cache import KernelCache, compile_kernels, kernel_key
from anycann.codegen.objects import emit_object
from anycann.support.errors import InternalError
from anycann.target.target import by_name, host


def kernel(number: int, copies: int = 1) -> tuple[str, str]:
    """(symbol, IR) of y = x + number, written `copies` times."""
    e = Emitter()
    x, y = e.argument(0), e.argument(1)
    with e.loop(e.begin, e.end) as loop:
        for _ in range(copies):
            value = e.load(e.gep(x, loop.index, "i32"), "i32", 4)
            e.store(e.add(value, e.const(number, "i32")), e.gep(y, loop.index, "i32"), 4)
    return e.finish("add")


def kernels(count: int, copies: int = 1) -> dict[str, str]:
    return dict(kernel(number, copies) for number in range(1, count + 1))


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


@pytest.fixture
def small_work_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pool, "WORTHWHILE_CHARACTERS", 0)


def entries(cache: KernelCache) -> list[Path]:
    return sorted(path for path in cache.folder.glob("*/*"))


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.fixture
def children() -> Callable[[], list[str]]:
    """The processes that were started since the test began and not reaped."""
    before = _children()  # other tests keep processes of their own
    return lambda: [child for child in _children() if child not in before]


def test_a_second_compilation_reads_the_cache_and_runs_no_compiler(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = kernels(3)
    first = compile_kernels(wanted, host(), cache=cache)
    monkeypatch.setattr(compile_pool, "_emit", lambda *_: pytest.fail("compiled again"))
    assert compile_kernels(wanted, host(), cache=cache) == first
    assert list(first) == list(wanted)


def test_another_target_is_another_entry() -> None:
    text = kernel(1)[1]
    assert kernel_key(text, by_name("avx2")) != kernel_key(text, by_name("avx512"))


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), lambda raw: b"", lambda raw: raw + b"x"]
)
def test_a_damaged_entry_is_compiled_again_and_replaced(cache: KernelCache, damage) -> None:  # type: ignore[no-untyped-def]
    wanted = kernels(1)
    first = compile_kernels(wanted, host(), cache=cache)
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert compile_kernels(wanted, host(), cache=cache) == first
    assert entry.read_bytes() == whole


def test_a_folder_that_others_may_write_to_is_ignored_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o770)
    with caplog.at_level(logging.WARNING, "anycann"):
        cache = KernelCache(folder)
        for _ in range(2):
            assert len(compile_kernels(kernels(1), host(), cache=cache)) == 1
    assert [r.message.count("is ignored") for r in caplog.records] == [1]
    assert not list(folder.iterdir())


def test_a_symbolic_link_in_place_of_the_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "kernels").symlink_to(tmp_path / "real")
    compile_kernels(kernels(1), host(), cache=KernelCache(tmp_path / "kernels"))
    assert not list((tmp_path / "real").iterdir())


def test_a_folder_that_cannot_be_made_costs_only_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert len(compile_kernels(kernels(2), host(), cache=KernelCache(tmp_path / "file" / "kernels"))) == 2
    assert "cannot be used" in caplog.text


def test_a_failing_write_is_said_once_and_leaves_no_file(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert len(compile_kernels(kernels(3), host(), cache=cache)) == 3
    assert caplog.text.count("No space left") == 1
    assert not entries(cache)


def test_above_the_limit_the_entries_unused_for_longest_go(cache: KernelCache) -> None:
    for number in range(10):
        cache.put(f"{number:064x}", bytes(1000))
        os.utime(cache.folder / "00" / f"{number:062x}", (number, number))
    cache.get(f"{0:064x}")  # used just now
    cache.limit_bytes = 5500
    cache.trim()
    kept = {int(path.name, 16) for path in entries(cache)}
    assert kept == {0, 7, 8, 9}


def test_the_folder_is_listed_once_an_hour_and_when_much_was_added(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Path] = []
    monkeypatch.setattr(kernel_cache, "_entries", lambda folder: listed.append(folder) or [])
    for number in range(3):
        cache.put(f"{number:064x}", b"x" * 100)
        cache.keep_within_limit()
    assert len(listed) == 1
    other = KernelCache(cache.folder)  # as in the next process
    other.keep_within_limit()
    assert len(listed) == 1
    other.limit_bytes = 6400
    other.put(f"{7:064x}", b"x" * 100)  # more than a 64th of what the cache may hold
    other.keep_within_limit()
    assert len(listed) == 2
    hour_ago = time.time() - 3601
    os.utime(cache.folder / ".listed", (hour_ago, hour_ago))
    cache.keep_within_limit()
    assert len(listed) == 3


def test_worker_processes_give_what_this_process_gives_and_are_all_reaped(
    cache: KernelCache, small_work_is_shared_out: None, children: Callable[[], list[str]]
) -> None:
    wanted = kernels(9)
    seen = []
    got = compile_kernels(wanted, host(), workers=3, progress=lambda done, total: seen.append((done, total)), cache=cache)
    assert got == {symbol: emit_object(text, host()) for symbol, text in wanted.items()}
    assert seen == [(i, 9) for i in range(1, 10)]
    assert children() == []


def test_kernels_of_killed_workers_are_compiled_here(
    cache: KernelCache, small_work_is_shared_out: None, monkeypatch: pytest.MonkeyPatch, children: Callable[[], list[str]]
) -> None:
    started = []
    start = compile_pool._start_worker

    def start_and_kill() -> subprocess.Popen[bytes]:
        started.append(start())
        os.kill(started[-1].pid, signal.SIGKILL)
        return started[-1]

    monkeypatch.setattr(compile_pool, "_start_worker", start_and_kill)
    wanted = kernels(8)
    assert compile_kernels(wanted, host(), workers=2, cache=cache) == {s: emit_object(t, host()) for s, t in wanted.items()}
    assert len(started) == 2
    assert children() == []


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(
    cache: KernelCache, small_work_is_shared_out: None, children: Callable[[], list[str]]
) -> None:
    wanted = kernels(30, copies=60)

    def kill_one(done: int, total: int) -> None:
        if done == 3:
            os.kill(int(children()[0]), signal.SIGKILL)

    assert sorted(compile_kernels(wanted, host(), workers=2, progress=kill_one, cache=cache)) == sorted(wanted)
    assert children() == []


def test_a_refused_kernel_is_the_same_error_from_a_worker_and_nothing_is_left_running(
    cache: KernelCache, small_work_is_shared_out: None, children: Callable[[], list[str]]
) -> None:
    wanted = {**kernels(6), "bad": "define void @bad() { ret i32 1 }"}
    with pytest.raises(InternalError, match=r"(?s)result type 'void'.*ret i32 1"):
        compile_kernels(wanted, host(), workers=2, cache=cache)
    assert children() == []


def test_workers_find_the_package_and_nothing_of_the_folder_they_start_in(
    cache: KernelCache, small_work_is_shared_out: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llvmlite.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    assert len(compile_kernels(kernels(5), host(), workers=2, cache=cache)) == 5


def test_the_environment_says_how_many_workers_there_are(
    cache: KernelCache, small_work_is_shared_out: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option was on the list and nobody asked it."""
    started = []
    start = compile_pool._start_worker
    monkeypatch.setattr(compile_pool, "_start_worker", lambda: started.append(start()) or started[-1])
    for count, wanted in (("3", 3), ("1", 0), ("0", 0)):
        monkeypatch.setenv("ANYCANN_COMPILE_WORKERS", count)
        started.clear()
        compile_kernels(kernels(6), host(), cache=KernelCache(cache.folder / count))
        assert len(started) == wanted, count


def test_a_script_without_a_main_guard_may_compile(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "from anycann.codegen import compile_pool\ncompile_pool.WORTHWHILE_CHARACTERS = 0\n"
        "from anycann.target.target import host\nprint('once')\n"
        "texts = {f'k{i}': f'define void @k{i}() {{ ret void }}' for i in range(6)}\n"
        "compile_pool.compile_missing(texts, host(), 2, lambda symbol, data: print(symbol))\n"
    )
    output = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600, check=True).stdout.split()
    assert sorted(output) == ["k0", "k1", "k2", "k3", "k4", "k5", "once"]


def test_the_worker_imports_no_heavy_module() -> None:
    code = "import sys, anycann.codegen.worker; print([m for m in ('onnx', 'onnx_ir', 'numpy', 'google.protobuf') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_little_work_is_done_apart_where_llvm_is_not_wanted(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom anycann.codegen.kernel_cache import compile_kernels\nfrom anycann.target.target import by_name\n"
        "made = compile_kernels({'k': 'define void @k() { ret void }'}, by_name('sse'), apart=sys.argv[1] == 'apart')\n"
        "print(made['k'][:4], 'llvmlite.binding' in sys.modules)"
    )
    for where, loaded in (("apart", False), ("here", True)):
        environment = {**os.environ, "ANYCANN_CACHE_DIR": str(tmp_path / where)}
        done = subprocess.run([sys.executable, "-c", code, where], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == [repr(b"\x7fELF"), str(loaded)]
