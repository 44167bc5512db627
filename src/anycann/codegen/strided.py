"""Reads of every second, third or fourth element, or backwards: whole vectors are loaded and the lanes wanted are picked out of them.

Nothing before the first or behind the last element wanted is touched: vectors that would reach farther begin earlier. Elsewhere elements
are read lane by lane where gathers are slow.
"""

from __future__ import annotations

from collections.abc import Iterator

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
        picked = pick(e, picked, vector, source)
    assert picked is not None
    return picked


def load_repeated(e: Emitter, first: Value, times: int, lanes: int, dtype: DType) -> Value:
    """Lane i is the element at `first` + i // times, for `times` that divide the lanes."""
    if lanes == times:
        return e.splat(e.load(first, dtype.storage, dtype.nbytes), lanes)
    few = e.load(first, vector_type(dtype.storage, lanes // times), dtype.nbytes)
    return e.shuffle(few, few, [lane // times for lane in range(lanes)])


def gather_one_by_one(e: Emitter, base: Value, places: Value, dtype: DType, mask: Value) -> Value:
    """The elements at `places` from `base`, lane by lane, for processors whose instruction for it is no faster; the first must exist.

    Lanes that the mask takes out are zero. Where its bits are unknown they read the first element: a branch for each lane takes several
    times as long.
    """
    lanes, every = places.lanes, known_lanes(mask)
    if every is None:
        places = e.select(mask, places, e.zero(places.type))
    found = e.zero(vector_type(dtype.storage, lanes))
    for lane, offset in enumerate(_each(e, places)):
        if every is None or every[lane]:
            found = e.insert(found, e.load(e.gep(base, offset, dtype.storage), dtype.storage, dtype.nbytes), lane)
    return found if every is not None else e.select(mask, found, e.zero(found.type))


def known_lanes(mask: Value) -> list[bool] | None:
    """Which lanes a literal mask takes; None for a mask that is computed."""
    if mask.text.startswith("splat"):
        return ["true" in mask.text] * mask.lanes
    return ["true" in bit for bit in mask.text.split(",")] if mask.text.startswith("<") else None


def _each(e: Emitter, places: Value) -> Iterator[Value]:
    """The lanes as 64-bit integers; of 32-bit ones two leave the vector registers at once."""
    if places.element != "i32" or places.lanes % 2:
        for lane in range(places.lanes):
            scalar = e.extract(places, lane)
            yield scalar if places.element == "i64" else e.cast("sext", scalar, "i64")
        return
    pairs = e.bitcast(places, vector_type("i64", places.lanes // 2))
    for number in range(pairs.lanes):
        pair = e.extract(pairs, number) if pairs.lanes > 1 else pairs
        yield e.cast("sext", e.cast("trunc", pair, "i32"), "i64")
        yield e.binary("ashr", pair, e.const(32, "i64"))


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


def pick(e: Emitter, picked: Value | None, vector: Value, source: list[int | None]) -> Value:
    """`picked`, of which None is any, with those lanes of `vector` that `source` names."""
    lanes = len(source)
    if picked is None:
        return e.shuffle(vector, vector, [0 if lane is None else lane for lane in source])
    return e.shuffle(picked, vector, [number if lane is None else lanes + lane for number, lane in enumerate(source)])
