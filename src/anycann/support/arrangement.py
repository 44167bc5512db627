"""How an array lies in another that holds the same elements in another order, with zeros between: weights packed for a kernel."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.support.records import dataclass

_NUMBERS = r"\d{1,18}(?:,\d{1,18}){0,15}"
_TEXT = re.compile(rf"{_NUMBERS}(?:/{_NUMBERS}){{3}}", re.ASCII)


@dataclass(frozen=True)
class Arrangement:
    """The packed elements as an array of sizes `split`; its axes in the order `axes`; that reshaped to `padded`; of each axis the first
    `kept`. What is left has the elements of the array in row-major order. Raises ValueError for sizes that contradict each other.
    """

    split: tuple[int, ...]
    axes: tuple[int, ...]
    padded: tuple[int, ...]
    kept: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.axes) != list(range(len(self.split))):
            raise ValueError(f"axes {self.axes} are no order of {len(self.split)} axes")
        if math.prod(self.split) != math.prod(self.padded):
            raise ValueError(f"sizes {self.split} and {self.padded} have different numbers of elements")
        if len(self.kept) != len(self.padded) or any(kept > size for kept, size in zip(self.kept, self.padded, strict=True)):
            raise ValueError(f"sizes {self.kept} are not within {self.padded}")

    @classmethod
    def parse(cls, text: str) -> Arrangement:
        """What `str` gave. Raises ValueError."""
        if not _TEXT.fullmatch(text):
            raise ValueError("four lists of numbers are accepted, as in 2,3,8/0,2,1/16,3/10,3")
        return cls(*(tuple(map(int, part.split(","))) for part in text.split("/")))

    def __str__(self) -> str:
        return "/".join(",".join(map(str, sizes)) for sizes in (self.split, self.axes, self.padded, self.kept))

    def restore(self, packed: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array, of sizes `kept`, from packed elements of any shape."""
        whole = packed.reshape(self.split).transpose(self.axes).reshape(self.padded)
        return np.ascontiguousarray(whole[tuple(slice(size) for size in self.kept)])
