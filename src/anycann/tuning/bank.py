"""Knowledge banks: what was measured to be the best, asked while kernels are generated.

The user's banks hold what was measured on this machine, and nothing of another machine or version of a generator is found in them. The
built-in bank serves every processor whose cores compute alike (`identity.core`) and whose caches are as large as those that an entry was
measured with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
import hashlib
from pathlib import Path
from typing import Any

from anycann.codegen.space import Point, Space, usable
from anycann.support import options
from anycann.support.cache import cache_folder
from anycann.support.errors import UsageError
from anycann.support.logging import get_logger
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.tuning.bank_files import OF_CORES, OF_THIS_MACHINE, Known, Naming, read_bank

BUILT_IN = Path(__file__).resolve().parent / "built_in"


@dataclass
class _Folder:
    """One bank. read: key -> what is known, when it is asked first."""

    read: Callable[[], Mapping[str, Known]]
    naming: Naming
    _known: Mapping[str, Known] | None = None
    _families: frozenset[str] = frozenset()
    _refused: set[str] = field(default_factory=set)

    def known(self) -> Mapping[str, Known]:
        """Everything in it."""
        if self._known is None:
            self._known = self.read()
            self._families = frozenset(known.family for known in self._known.values())
        return self._known

    def find(self, space: Space[Any]) -> Point | None:
        """The point for this problem; None, after a message, for one that the space lacks."""
        known = self.known()
        if space.family not in self._families:  # a key takes a tenth of a millisecond
            return None
        key = self.naming.key(space)
        found = known.get(key)
        if found is None or not found.suits(space.target):
            return None
        if usable(space, found.point) is not None:
            return found.point
        if key not in self._refused:
            self._refused.add(key)
            get_logger("tuning").warning(
                "knowledge bank: entry %s (%s) says %s, which is not among the choices; it is not used", key, space.family, found.point
            )
        return None


class Bank:
    """The points of one bank, or of several of which earlier ones win, and behind them those of `built_in`. Read when it is asked first."""

    def __init__(self, folders: Sequence[Path], target: Target, built_in: Path | None = None):
        self._folders = [_Folder(partial(read_bank, folder, OF_THIS_MACHINE.soc(target)), OF_THIS_MACHINE) for folder in folders]
        if built_in is not None:
            self._folders.append(_Folder(partial(_read_once, built_in, OF_CORES.soc(target)), OF_CORES))

    def find(self, space: Space[Any]) -> Point | None:
        """The point kept for this problem on this machine; None if there is none that the space has."""
        return next((point for folder in self._folders if (point := folder.find(space)) is not None), None)

    def digest(self) -> str:
        """All that the banks hold."""
        held = [sorted((key, repr(known)) for key, known in folder.known().items()) for folder in self._folders]
        return hashlib.sha256(repr(held).encode()).hexdigest()

    def __len__(self) -> int:
        return sum(len(folder.known()) for folder in self._folders)


_read_once = lru_cache(maxsize=8)(read_bank)  # what is built in does not change while a process runs


def open_bank(target: Target, custom: Iterable[str | Path] = ()) -> Bank | None:
    """The banks that compiling for `target` asks: `custom` folders, else that of the environment, then the built-in one.

    None if ENABLE_TUNE_BANK says so.
    """
    if not options.ENABLE_TUNE_BANK.get():
        return None
    folders = [Path(folder) for folder in custom] or [custom_folder()]
    return Bank(folders, target, BUILT_IN)


def custom_folder() -> Path:
    """Where results are kept: TUNE_BANK_PATH, else aoe_data in ASCEND_CACHE_PATH, else in the cache folder."""
    chosen, ascend = options.TUNE_BANK_PATH.get(), options.ASCEND_CACHE_PATH.get()
    if chosen:
        return Path(chosen).absolute()
    return Path(ascend).absolute() / "aoe_data" if ascend else cache_folder("tuning")


def require_folder(path: str, option: str) -> str:
    """The folder that an option names. Raises UsageError if it is none."""
    if not Path(path).is_dir():
        raise UsageError(f"{option} {path!r} is no folder; accepted: the folder of a knowledge bank")
    return str(Path(path).absolute())
