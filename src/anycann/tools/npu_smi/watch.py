"""`npu-smi info watch`: a row for each device, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tools.npu_smi.facts import Npu

_WIDTH = 12


@dataclass(frozen=True)
class Column:
    """What a letter of -s stands for."""

    name: str
    fact: Callable[[Npu], object]


COLUMNS = {
    "p": Column("Pwr(W)", lambda npu: "NA"),
    "t": Column("Temp(C)", lambda npu: "NA"),
    "a": Column("AI Core(%)", lambda npu: npu.load_percent),
    "i": Column("AI Cpu(%)", lambda npu: npu.load_percent),
    "c": Column("Ctrl Cpu(%)", lambda npu: 0),
    "m": Column("Memory(%)", lambda npu: npu.memory_percent),
    "b": Column("Memory BW(%)", lambda npu: 0),
    "n": Column("NPU Util(%)", lambda npu: npu.load_percent),
}
USUAL = "ptaicmb"


def head(letters: str) -> str:
    """The line above the rows. Raises UsageError for a letter that stands for nothing."""
    unknown = [letter for letter in letters if letter not in COLUMNS]
    if unknown or not letters:
        accepted = ", ".join(f"{letter} {column.name}" for letter, column in COLUMNS.items())
        raise UsageError(f"-s is {letters!r}; accepted: letters of {accepted}")
    return _row(["NpuID(Idx)", "ChipId(Idx)", *(COLUMNS[letter].name for letter in letters)])


def rows(npus: Sequence[Npu], letters: str) -> Iterator[str]:
    """A line for each device."""
    for npu in npus:
        yield _row([npu.number, 0, *(COLUMNS[letter].fact(npu) for letter in letters)])


def _row(cells: Sequence[object]) -> str:
    return "".join(f"{cell!s:<{_WIDTH}}" for cell in cells).rstrip()
