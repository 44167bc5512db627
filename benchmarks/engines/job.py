"""What an engine is opened for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from numpy.typing import NDArray

from benchmarks.zoo.models import Model

Precision: TypeAlias = Literal["fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class Absent(Exception):
    """Why an engine has no number here: not installed, or it cannot run this model."""


@dataclass(frozen=True)
class Job:
    """A model as it is run: its ONNX file (quantised for int8), the feeds of one call, threads and precision."""

    model: Model
    path: Path
    feeds: Mapping[str, NDArray[Any]]
    threads: int
    precision: Precision = "fp32"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the feeds, by input name."""
        return {name: array.shape for name, array in self.feeds.items()}
