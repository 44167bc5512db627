"""The machine that code is generated for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
import hashlib
import json
from pathlib import Path
import platform
import re

import llvmlite

from anycann.support import options
from anycann.support.cache import cache_folder
from anycann.support.errors import DeviceError, UsageError
from anycann.support.files import write_whole
from anycann.support.records import dataclass
from anycann.target.permissions import permit_matrix_tiles

_FEW_REGISTERS = 16


@dataclass(frozen=True)
class Target:
    """A processor as the code generator sees it. `lanes` (C0) is the number of float32 in one vector register."""

    name: str
    triple: str
    cpu: str
    features: str  # as LLVM takes them: "+avx2,+fma"
    lanes: int
    registers: int  # vector registers
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith("x86_64")

    @property
    def has_few_registers(self) -> bool:
        """True for no more than 16 vector registers: x86 without AVX-512."""
        return self.registers <= _FEW_REGISTERS

    def has(self, feature: str) -> bool:
        """True if `feature` ("avx512bf16") is switched on."""
        return f"+{feature}" in self._features

    @cached_property
    def _features(self) -> frozenset[str]:
        return frozenset(self.features.split(","))

    @property
    def key(self) -> str:
        """Text that names everything machine code depends on; part of every cache key."""
        return f"{self.triple}|{self.cpu}|{self.features}|{self.lanes}"


_X86 = "x86_64-unknown-linux-gnu"
_ARM = "aarch64-unknown-linux-gnu"
_AVX2 = "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt"
_AVX512 = _AVX2 + ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,-prefer-256-bit"

NAMED = {
    "sse": Target("sse", _X86, "x86-64-v2", "+sse4.2,+popcnt", 4, 16),
    "avx2": Target("avx2", _X86, "x86-64-v3", _AVX2, 8, 16),
    "avx512": Target("avx512", _X86, "x86-64-v4", _AVX512, 16, 32),
    "neon": Target("neon", _ARM, "generic", "+neon", 4, 32),
    "sve": Target("sve", _ARM, "neoverse-v1", "+neon,+sve", 4, 32),
}
# EPYC of the fourth generation, without what other makers' processors lack: they run its code too, for tests and comparisons.
_ZEN4 = ",+avx512ifma,+avx512vbmi,+avx512vbmi2,+avx512vnni,+avx512bitalg,+avx512vpopcntdq,+avx512bf16,+gfni,-sse4a"
PROCESSORS = {"znver4": Target("znver4", _X86, "znver4", _AVX512 + _ZEN4, 16, 32)}


def by_name(name: str) -> Target:
    """The target called `name`: `host`, a row of NAMED or of PROCESSORS.

    Features may follow as LLVM names them, added or taken away: `avx2,+avxvnni`, `host,-amx-tile`. Raises UsageError for another name.
    """
    base, *changes = name.split(",")
    known = {**NAMED, **PROCESSORS}
    if base != "host" and base not in known:
        raise UsageError(f"target {base!r} is unknown; accepted: host, {', '.join(known)}")
    wrong = next((change for change in changes if change[:1] not in ("+", "-") or not change[1:]), None)
    if wrong is not None:
        raise UsageError(f"target {name!r}: {wrong!r} is no feature; accepted: +feature and -feature, as in avx2,+avxvnni")
    target = known[base] if base != "host" else host() if not changes else processor()
    return _with_features(target, changes) if changes else target


def _with_features(target: Target, changes: Sequence[str]) -> Target:
    changed = {change[1:] for change in changes}
    kept = [feature for feature in target.features.split(",") if feature[1:] not in changed]
    return replace(target, features=",".join([*kept, *changes]))


def host() -> Target:
    """The processor this runs on, or the one that ANYCANN_TARGET names."""
    limit = options.TARGET.get()
    return by_name(limit) if limit and limit != "host" else processor()


@lru_cache(maxsize=1)
def processor() -> Target:
    """The processor this runs on, as far as the system lets this process use it.

    LLVM is asked once for each kind of processor and version; the answer is kept in the cache folder.
    """
    found = _known_processor()
    return found if not found.has("amx-tile") or permit_matrix_tiles() else _without_matrix_tiles(found)


def _known_processor() -> Target:
    identity = _identity()
    if identity is None:
        return _ask_llvm()
    file = cache_folder("processors") / f"{identity}.json"
    try:
        known = Target(**json.loads(file.read_text()))
        if known.lanes in (4, 8, 16):
            return known
    except (OSError, ValueError, TypeError):
        pass
    found = _ask_llvm()
    with suppress(OSError, DeviceError):
        write_whole(file, json.dumps(asdict(found)).encode())
    return found


def _without_matrix_tiles(target: Target) -> Target:
    return replace(target, features=",".join(f for f in target.features.split(",") if not f.startswith("+amx-")))


def _identity() -> str | None:
    """What tells one kind of processor from another, as the kernel describes the first; None where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return None
    kept = [line for line in lines if line.split("\t")[0].strip() in _TELLING]
    return hashlib.sha256("\n".join([*kept, llvmlite.__version__, platform.machine()]).encode()).hexdigest()[:32] if kept else None


_TELLING = frozenset({"vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part", "CPU implementer"})


def _ask_llvm() -> Target:
    import llvmlite.binding as llvm  # 40 MB, which a process that only runs models can do without

    cpu = llvm.get_host_cpu_name()
    features = dict(llvm.get_host_cpu_features())
    if platform.machine() not in ("x86_64", "AMD64"):
        return Target("host", llvm.get_process_triple(), cpu, _flatten(features), 4, 32)
    wide = all(features.get(f) for f in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
    middle = features.get("avx2") and features.get("fma")
    lanes, registers = (16, 32) if wide else (8, 16) if middle else (4, 16)
    text = _flatten(features) + (",-prefer-256-bit" if wide else "")
    return Target("host", llvm.get_process_triple(), cpu, text, lanes, registers, cache_size("1", "Data"), cache_size("2", "Unified"))


def _flatten(features: dict[str, bool]) -> str:
    return ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))


def cache_size(level: str, kind: str, folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the first cache of that level, from the kernel; a usual size where it does not say, as in some virtual machines."""
    for index in range(4):
        try:
            found, type_, size = ((folder / f"index{index}" / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            break
        known = re.fullmatch(r"([1-9]\d*)([KM])", size)
        if known and (found, type_) == (level, kind):
            return int(known[1]) * _UNITS[known[2]]
    return {"1": 32 * 1024, "2": 1024 * 1024}[level]


_UNITS = {"K": 1024, "M": 1024 * 1024}
