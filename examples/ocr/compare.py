"""The same reading on several engines, measured turn by turn so that a busy machine disturbs all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
import time

from PIL import Image

from examples.ocr.reader import Reader, Reading


@dataclass(frozen=True)
class Measured:
    """An engine's first reading, and the seconds of: opening the models, the first picture, and each warm picture after it."""

    name: str
    reading: Reading
    load_seconds: float
    warm: tuple[Reading, ...]

    @property
    def picture_seconds(self) -> float:
        """Median of the warm pictures."""
        return median(reading.seconds for reading in self.warm)

    def row(self) -> str:
        """One line of the table under `HEADER`; times in milliseconds."""
        times = sorted(reading.seconds * 1000 for reading in self.warm)
        detection = median(reading.detection_seconds for reading in self.warm) * 1000
        recognition = median(reading.recognition_seconds for reading in self.warm) * 1000
        spread = f"{times[0]:.0f}-{times[-1]:.0f}"
        return (
            f"{self.name:<14}{self.load_seconds * 1000:>8.0f}{self.reading.seconds * 1000:>16.0f}"
            f"{median(times):>10.0f}{spread:>12}{detection:>12.0f}{recognition:>13.0f}"
        )


HEADER = f"{'milliseconds':<14}{'load':>8}{'first picture':>16}{'then':>10}{'spread':>12}{'detection':>12}{'recognition':>13}"


def measure(engines: Mapping[str, Callable[[], Reader]], picture: Image.Image, runs: int) -> list[Measured]:
    """Open each engine, read once, then `runs` more times in turn: a, b, a, b, ..."""
    readers, loads, firsts = {}, {}, {}
    for name, open_reader in engines.items():
        started = time.perf_counter()
        readers[name] = open_reader()
        loads[name] = time.perf_counter() - started
        firsts[name] = readers[name].read(picture)
    warm: dict[str, list[Reading]] = {name: [] for name in engines}
    for _ in range(runs):
        for name, reader in readers.items():
            warm[name].append(reader.read(picture))
    return [Measured(name, firsts[name], loads[name], tuple(warm[name])) for name in engines]


def agreement(one: Reading, other: Reading) -> tuple[bool, str]:
    """Whether two readings say the same, and a sentence about it."""
    texts, others = [line.text.text for line in one.lines], [line.text.text for line in other.lines]
    if texts != others:
        first = next((pair for pair in zip(texts, others, strict=False) if pair[0] != pair[1]), (texts[-1:], others[-1:]))
        return False, f"the readings differ: {len(texts)} and {len(others)} lines, first difference {first[0]!r} and {first[1]!r}"
    difference = max((abs(a.text.confidence - b.text.confidence) for a, b in zip(one.lines, other.lines, strict=True)), default=0.0)
    return True, f"both read the same {len(texts)} lines; confidences differ by at most {difference:.6f}"
