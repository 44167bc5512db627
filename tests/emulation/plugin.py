"""pytest --emulate NAME: tests find another processor here, and an emulator runs what this one cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import ctypes
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

from anycann.runtime import loader, thread_pool
from anycann.runtime.loader import LoadedCode
from anycann.target import target as targets
from anycann.target.target import NAMED, PROCESSORS, Target
from tests.emulation.processor import EmulatedProcessor

_ZEN4 = PROCESSORS["znver4"]
_SAPPHIRE_RAPIDS = _ZEN4.features + ",+avxvnni,+amx-tile,+amx-int8,+amx-bf16,-avx512fp16"  # whose VMOVW is emulated wrong
EMULATED = {
    "avx512": replace(NAMED["avx512"], name="host"),
    "znver4": replace(_ZEN4, name="host"),
    "sapphirerapids": replace(_ZEN4, name="host", cpu="sapphirerapids", features=_SAPPHIRE_RAPIDS),
}
_Entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)  # of kernels
emulator = cache(EmulatedProcessor)  # there is one in a process
_load, _address = LoadedCode.__init__, LoadedCode.address


class Emulation:
    """What runs here as on `target`. The thread pool stays this machine's own; frameworks' machine code is refused."""

    def __init__(self, target: Target):
        self.target, self.real = target, targets.processor()
        emulator()  # before threads could make two
        self.calls = 0
        self._errors: list[Exception] = []
        self._kept: list[object] = []  # what is unloaded leaves its address to others, and the emulator remembers what it read there

    def install(self) -> None:
        """From now on `processor()` is the target."""
        targets.processor.cache_clear()
        targets._known_processor = lambda: self.target
        targets.permit_matrix_tiles = lambda: True
        thread_pool.host = lambda: self.real
        loader.processor = lambda: replace(self.target, features=f"{self.real.features},{self.target.features}")  # what can be loaded
        LoadedCode.__init__ = lambda code, *arguments: self._loaded(code, *arguments)
        LoadedCode.address = lambda code, symbol: self._entry(code, symbol)

    def _loaded(self, code: LoadedCode, objects: Mapping[str, bytes], target: Target | None = None, functions: Any = None) -> None:
        _load(code, objects, target, functions)
        if functions and lacks(code.target, self.real):
            pytest.skip("code that calls a framework is not emulated")
        self._kept.append(code)

    def _entry(self, code: LoadedCode, symbol: str) -> int:
        address = _address(code, symbol)
        if not lacks(code.target, self.real):
            return address

        def run(*arguments: int) -> None:
            self.calls += 1
            try:
                emulator().call(address, arguments)
            except Exception as error:  # it cannot pass through the code that called
                self._errors.append(error)

        entry = _Entry(run)
        self._kept.append(entry)
        return ctypes.cast(entry, ctypes.c_void_p).value or 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """A test of what the processor refused fails, whatever came out."""
        try:
            yield
        finally:
            self.check()

    def check(self) -> None:
        """Raise AssertionError if the processor has refused anything since it was asked last."""
        errors, self._errors = self._errors, []
        assert not errors, f"the emulated processor refused: {errors[0]}"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that shares out the tests how much this one did, if there is one."""
        getattr(session.config, "workeroutput", {})["emulated"] = self.calls

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what another process did."""
        self.calls += getattr(node, "workeroutput", {}).get("emulated", 0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How much the emulator did."""
        terminalreporter.write_line(f"emulated: {self.calls} calls of kernels for {self.target.cpu}")


def lacks(target: Target, real: Target) -> bool:
    """Whether the processor `real` cannot run code for `target`."""
    return any(feature.startswith("+") and feature not in real.features.split(",") for feature in target.features.split(","))


def emulate(name: str) -> Emulation:
    """An installed emulation of the processor `name`, for the rest of this process. Raises UsageError for another one, or without Bochs."""
    if name not in EMULATED:
        raise pytest.UsageError(f"--emulate {name}: accepted are {', '.join(EMULATED)}")
    if find_spec("bochscpu") is None:
        raise pytest.UsageError("--emulate needs bochscpu-python, for Linux on x86-64: pip install -e '.[test]'")
    emulation = Emulation(EMULATED[name])
    emulation.install()
    return emulation
