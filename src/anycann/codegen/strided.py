"""Reads of every second, third or fourth element, or backwards: whole vectors are loaded and the lanes wanted are picked out of them.

Nothing before the first or behind the last element wanted is touched: vectors that would reach farther begin earlier.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.te.dtypes import DType

STRIDES = frozenset({-1, 2, 3, 4})
MASKED_BYTES = 4  # elements of fewer bytes are masked one by one


def is_pickable(stride: int, dtype: DType, masked: bool) -> bool:
    """Whether `load_strided` is faster than a gather."""
    return stride in STRIDES and (not masked or dtype.nbytes >= MASKED_BYTES)


def load_strided(e: Emitter, first: Value, stride: int, lanes: int, dtype: DType, mask: Value | None) -> Value:
    """Lane i is the element at `first` + i * stride; lanes where `mask` is false are not read."""
    places = [lane * stride for lane in range(lanes)]
    lowest, reach = min(places), max(places) - min(places) + 1 - lanes
    starts = [lowest + min(number * lanes, reach) for number in range(abs(stride))]
    owner = [next(number for number, start in enumerate(starts) if start <= place < start + lanes) for place in places]
    picked: Value | None = None
    for number, start in enumerate(starts):
        vector = _load(e, e.gep(first, start, dtype.storage), dtype, lanes, _spread(e, mask, places, owner, number, start))
        source = [place - start if own == number else None for place, own in zip(places, owner, strict=True)]
        picked = _pick(e, picked, vector, source)
    assert picked is not None
    return picked


def _load(e: Emitter, address: Value, dtype: DType, lanes: int, mask: Value | None) -> Value:
    type_ = vector_type(dtype.storage, lanes)
    if mask is None:
        return e.load(address, type_, dtype.nbytes)
    return e.masked_load(address, type_, dtype.nbytes, mask, e.zero(type_))


def _spread(e: Emitter, mask: Value | None, places: list[int], owner: list[int], number: int, start: int) -> Value | None:
    """The mask of vector `number`, which begins at `start`: true for elements that a lane takes from it and may read."""
    if mask is None:
        return None
    lanes = len(places)
    taker = {place - start: lane for lane, (place, own) in enumerate(zip(places, owner, strict=True)) if own == number}
    return e.shuffle(mask, e.zero(mask.type), [taker.get(lane, lanes) for lane in range(lanes)])


def _pick(e: Emitter, picked: Value | None, vector: Value, source: list[int | None]) -> Value:
    """`picked` with those lanes of `vector` that `source` names."""
    lanes = len(source)
    if picked is None:
        return e.shuffle(vector, vector, [0 if lane is None else lane for lane in source])
    return e.shuffle(picked, vector, [number if lane is None else lanes + lane for number, lane in enumerate(source)])
