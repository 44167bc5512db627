"""Repositories of short features, and the search for those that are nearest to a query.

A feature is 32 codes, one for each part of a long vector (product quantisation). A query is a table: for each part, how far its own part is
from each of the 256 that a code stands for. The distance of a feature is the sum over its codes (Jegou et al., Product Quantization for
Nearest Neighbor Search, 2011).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
import sys

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.support.records import dataclass

PARTS, CODES = 32, 256
HEAD_BYTES = 4  # before the codes of a feature, 0
FEATURE_BYTES = HEAD_BYTES + PARTS
TABLE_BYTES = PARTS * CODES * 4
_AT_ONCE = 8192  # features whose codes and distances stay in the cache

Codes = NDArray[np.uint8]  # [features, PARTS]
Table = NDArray[np.float32]  # [PARTS, CODES], or of pairs


@dataclass(frozen=True)
class Found:
    """Features and how far they are, by their repositories and places there, the nearest first."""

    id0: NDArray[np.uint32]
    id1: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    distances: NDArray[np.float32]


@dataclass
class Repository:
    """Features by the order they came in; a place that was deleted stays empty."""

    codes: Codes = field(default_factory=lambda: np.empty((0, PARTS), np.uint8))
    filled: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    count: int = 0  # places that were given; the arrays have room for more

    def add(self, codes: Codes) -> None:
        """Put features behind the others."""
        end = self.count + len(codes)
        if end > len(self.codes):
            room = max(end, 2 * len(self.codes))
            self.codes = np.concatenate([self.codes[: self.count], np.empty((room - self.count, PARTS), np.uint8)])
            self.filled = np.concatenate([self.filled[: self.count], np.empty(room - self.count, np.bool_)])
        self.codes[self.count : end], self.filled[self.count : end] = codes, True
        self.count = end

    def nearest(self, pairs: Table, most: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Places and distances of at most `most` features, in no order."""
        distances = distances_of(self.codes[: self.count], pairs)
        places = np.flatnonzero(self.filled[: self.count])
        if len(places) > most:
            places = places[np.argpartition(distances[places], most - 1)[:most]] if most else places[:0]
        return places, distances[places]


def in_pairs(table: Table) -> Table:
    """[PARTS / 2, CODES * CODES]: the distance of two parts by the number that their codes are together, half as many to add up."""
    pairs = table.reshape(PARTS // 2, 2, CODES)
    first, second = (1, 0) if sys.byteorder == "little" else (0, 1)
    return (pairs[:, first, :, None] + pairs[:, second, None, :]).reshape(PARTS // 2, CODES * CODES)


def distances_of(codes: Codes, pairs: Table) -> NDArray[np.float32]:
    """The distance of each feature."""
    total = np.zeros(len(codes), np.float32)
    numbers = codes.view(np.uint16)
    for start in range(0, len(codes), _AT_ONCE):
        part = total[start : start + _AT_ONCE]
        for pair, column in zip(pairs, numbers[start : start + _AT_ONCE].T, strict=True):
            part += pair.take(column)
    return total


class Repositories:
    """Repositories by two numbers, for at most `most_features` features in all."""

    def __init__(self, most_features: int, most_of_one: int):
        self._most, self._most_of_one = most_features, most_of_one
        self._found: dict[tuple[int, int], Repository] = {}

    @property
    def count(self) -> int:
        """Places that were given in all of them."""
        return sum(each.count for each in self._found.values())

    def add(self, key: tuple[int, int], offset: int, codes: Codes) -> None:
        """Put features behind the `offset` that are there. Raises AclError for another number, and for more than there is room for."""
        there = self._found.get(key, Repository())
        if offset != there.count:
            raise AclError(
                Code.FAILURE, f"offset {offset} in repository {key}; accepted: {there.count}, the features that were added to it"
            )
        if there.count + len(codes) > self._most_of_one or self.count + len(codes) > self._most:
            raise AclError(
                Code.FAILURE,
                f"{len(codes)} features more than the {there.count} of repository {key} and the {self.count} of all; "
                f"accepted: {self._most_of_one} in one, {self._most} in all, as acl.fv.create_init_para was told",
            )
        there.add(codes)
        self._found[key] = there

    def replace(self, key: tuple[int, int], offset: int, codes: Codes) -> None:
        """Write another feature in place of one. Raises AclError if there is none."""
        self._place(key, offset).codes[offset] = codes

    def delete(self, key: tuple[int, int], offset: int) -> None:
        """Take one feature away; the others keep their places. Raises AclError if there is none."""
        self._place(key, offset).filled[offset] = False

    def _place(self, key: tuple[int, int], offset: int) -> Repository:
        there = self._found.get(key)
        if there is None or not 0 <= offset < there.count or not there.filled[offset]:
            raise AclError(Code.FAILURE, f"repository {key} has no feature at offset {offset}")
        return there

    def forget(self, keys: Iterable[tuple[int, int]]) -> None:
        """Forget repositories."""
        for key in keys:
            self._found.pop(key, None)

    def within(self, first: tuple[int, int], last: tuple[int, int]) -> list[tuple[int, int]]:
        """Those whose numbers are between two pairs, both included, in order."""
        return sorted(key for key in self._found if all(low <= number <= high for low, number, high in zip(first, key, last, strict=True)))

    def nearest(self, keys: Iterable[tuple[int, int]], table: Table, most: int) -> Found:
        """At most `most` features of these, the nearest first; those as near as each other by repository and place."""
        pairs = in_pairs(table)
        parts = [(key, *self._found[key].nearest(pairs, most)) for key in keys]
        keyed = [np.column_stack((np.full((len(places), 2), key), places)) for key, places, _ in parts]
        numbers = np.concatenate([np.empty((0, 3), np.int64), *keyed]).astype(np.uint32)
        distances = np.concatenate([np.empty(0, np.float32), *(far for _, _, far in parts)])
        order = np.lexsort((*numbers.T[::-1], distances))[:most]
        id0, id1, offsets = numbers[order].T
        return Found(id0, id1, offsets, distances[order])
