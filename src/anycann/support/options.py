"""Every environment variable of AnyCANN, declared once: name, type, default and what it is for. Read when asked, never at import."""

from __future__ import annotations

from collections.abc import Callable
import os
from typing import Generic, TypeAlias, TypeVar

from anycann.support.errors import UsageError
from anycann.support.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """How the text of a variable becomes a value. `parse` answers None for text it does not accept; `accepted` says what it does."""

    accepted: str
    parse: Callable[[str], T | None]


@dataclass(frozen=True)
class Option(Generic[T]):
    """One environment variable. An unset or empty variable has the default."""

    name: str
    kind: Kind[T]
    default: T | None
    help: str

    def get(self) -> T | None:
        """The value now. Raises UsageError that names the variable, its text and what is accepted."""
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        value = self.kind.parse(text)
        if value is None:
            raise UsageError(f"environment variable {self.name} is {text!r}; accepted: {self.kind.accepted}")
        return value

    def is_set(self) -> bool:
        """True if the environment gives a value, right or wrong."""
        return bool(os.environ.get(self.name, "").strip())


def whole_number(least: int, most: int) -> Kind[int]:
    """Decimal digits between `least` and `most`."""

    def parse(text: str) -> int | None:
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            return None
        return int(text) if least <= int(text) <= most else None

    return Kind(f"a whole number from {least} to {most}", parse)


def one_of(*words: str) -> Kind[str]:
    """One of `words`, in any case."""
    return Kind(", ".join(words), lambda text: text.lower() if text.lower() in words else None)


def flag() -> Kind[bool]:
    """Yes or no."""
    words = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
    return Kind("0 or 1", lambda text: words.get(text.lower()))


def path() -> Kind[str]:
    """A file or folder; a leading ~ is the home folder."""
    return Kind("a path", os.path.expanduser)


def word() -> Kind[str]:
    """Any text; whoever uses it says what it accepts."""
    return Kind("a name", lambda text: text)


AnyOption: TypeAlias = Option[int] | Option[str] | Option[bool]

_TABLE: dict[str, AnyOption] = {}


def option(name: str, kind: Kind[T], default: T | None, help: str) -> Option[T]:
    """Declare the variable `name` and put it on the list. Raises ValueError if it is declared already."""
    if name in _TABLE:
        raise ValueError(f"{name} is declared twice")
    declared = Option(name, kind, default, help)
    _TABLE[name] = declared  # type: ignore[assignment]
    return declared


LOG_LEVELS = ("debug", "info", "warning", "error")

CACHE_DIR = option(
    "ANYCANN_CACHE_DIR",
    path(),
    None,
    "folder for compiled kernels, tuning results and this installation's key; default: anycann in $XDG_CACHE_HOME or ~/.cache",
)
NUM_THREADS = option(
    "ANYCANN_NUM_THREADS",
    whole_number(1, 4096),
    None,
    "threads that run a model; default: the processors that affinity and control groups leave this process",
)
TARGET = option(
    "ANYCANN_TARGET",
    word(),
    None,
    "processor to compile for (sse, avx2, avx512, neon, sve, znver4), features behind it (avx2,+avxvnni or host,-amx-tile); "
    "default: the one this runs on",
)
LOG = option("ANYCANN_LOG", one_of(*LOG_LEVELS), "warning", "least severe message to print")
COMPILE_WORKERS = option(
    "ANYCANN_COMPILE_WORKERS", whole_number(0, 4096), None, "processes that compile kernels, 0 for none; default: one a processor"
)
TRUSTED_KEYS = option(
    "ANYCANN_TRUSTED_KEYS", path(), None, "file of hexadecimal keys, one a line, whose machine code in offline models is run as it is"
)
DEVICES = option("ANYCANN_DEVICES", whole_number(1, 1024), 1, "virtual devices that programs see")
DEVICE_MEMORY = option(
    "ANYCANN_DEVICE_MEMORY", whole_number(1, 1 << 30), None, "memory of each virtual device in MiB; default: the machine's"
)
VISIBLE_DEVICES = option(
    "ASCEND_RT_VISIBLE_DEVICES", word(), None, "numbers of the devices that torch sees, with commas between them; default: all"
)
TORCH_NPU_REPORT = option(
    "TORCH_NPU_REPORT", flag(), False, "1 prints the operators that ran on the npu of torch, and who ran them, at exit"
)
SOC = option(
    "ANYCANN_SOC", word(), None, "chip that programs are told they run on; default: that of the first model loaded, else Ascend310P3"
)
SANITIZE = option("ANYCANN_SANITIZE", flag(), False, "1 makes `import acl` report misuse of AscendCL with the lines that made it")
SANITIZE_JSON = option("ANYCANN_SANITIZE_JSON", path(), None, "file for what ANYCANN_SANITIZE finds")
PROFILE = option("ANYCANN_PROFILE", path(), None, "folder for a profile of each program that calls acl.init; the command msprof sets it")
DEBUG = option("ANYCANN_DEBUG", flag(), False, "1 makes the commands print where an error was raised")
VERIFY = option("ANYCANN_VERIFY", flag(), False, "1 checks the graph after each pass, as the tests do")

# Ascend's variables of tuning
TUNE_BANK_PATH = option("TUNE_BANK_PATH", path(), None, "folder of the knowledge bank that tuning fills and compiling asks")
ASCEND_CACHE_PATH = option("ASCEND_CACHE_PATH", path(), None, "its aoe_data folder is the knowledge bank if TUNE_BANK_PATH is not set")
ASCEND_WORK_PATH = option("ASCEND_WORK_PATH", path(), None, "folder for what tuning writes beside; default: where it is started")
ENABLE_TUNE_BANK = option("ENABLE_TUNE_BANK", flag(), True, "False makes compiling ask no knowledge bank")
REPEAT_TUNE = option("REPEAT_TUNE", flag(), False, "True makes aoe tune again what the knowledge bank knows already")
TUNE_OPS_NAME = option("TUNE_OPS_NAME", word(), None, "names of the nodes that aoe tunes, with commas between them; default: all")
TUNING_NUM = option("TUNING_NUM", whole_number(1, 100_000), 48, "how many candidates aoe measures for each kernel at most")
TUNE_TIMEOUT = option("TUNE_TIMEOUT", whole_number(1, 10_000_000), None, "seconds after which aoe stops searching")

# ranks and collectives: Ascend's variables, and torchrun's
RANK_TABLE_FILE = option("RANK_TABLE_FILE", path(), None, "file that says which device of which server is which rank")
RANK_ID = option("RANK_ID", word(), None, "rank of this process, or its name in the rank table")
RANK_SIZE = option("RANK_SIZE", whole_number(1, 1 << 20), None, "how many ranks there are")
DEVICE_ID = option("DEVICE_ID", whole_number(0, 1023), None, "device of this process if there is no rank table; default: its rank")
CM_CHIEF_IP = option("CM_CHIEF_IP", word(), None, "address where ranks meet if MASTER_ADDR is not set")
CM_CHIEF_PORT = option("CM_CHIEF_PORT", whole_number(1, 65535), None, "port where ranks meet if MASTER_PORT is not set")
CM_WORKER_SIZE = option("CM_WORKER_SIZE", whole_number(1, 1 << 20), None, "how many ranks there are if RANK_SIZE is not set")
RANK = option("RANK", whole_number(0, 1 << 20), None, "rank of this process, set by torchrun; wins over RANK_ID")
WORLD_SIZE = option("WORLD_SIZE", whole_number(1, 1 << 20), None, "how many ranks there are, set by torchrun")
LOCAL_RANK = option("LOCAL_RANK", whole_number(0, 1 << 20), None, "rank of this process on its server, set by torchrun")
LOCAL_WORLD_SIZE = option("LOCAL_WORLD_SIZE", whole_number(1, 1 << 20), None, "ranks on this server, set by torchrun")
MASTER_ADDR = option("MASTER_ADDR", word(), None, "address where ranks meet")
MASTER_PORT = option("MASTER_PORT", whole_number(1, 65535), None, "port where ranks meet; default 29500")
HCCL_CONNECT_TIMEOUT = option("HCCL_CONNECT_TIMEOUT", whole_number(1, 7200), None, "seconds in which all ranks must appear; default 120")
HCCL_EXEC_TIMEOUT = option("HCCL_EXEC_TIMEOUT", whole_number(1, 17340), None, "seconds that a collective may take; default 1800")
TRANSFER_TO_NPU = option("TORCH_TRANSFER_TO_NPU", flag(), False, "1 makes `import torch_npu` let scripts for CUDA run on the npu")


def all_options() -> tuple[AnyOption, ...]:
    """Every declared variable, by name."""
    return tuple(_TABLE[name] for name in sorted(_TABLE))


def describe_options() -> str:
    """A printable list: each variable with its value where set, what it accepts and what it is for."""
    lines = []
    for declared in all_options():
        value = f" = {os.environ[declared.name]}" if declared.is_set() else ""
        default = f"; default {declared.default}" if declared.default not in (None, False) else ""
        lines.append(f"{declared.name}{value}\n    {declared.help} ({declared.kind.accepted}{default})")
    return "\n".join(lines)
