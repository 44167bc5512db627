"""Whether tensors are still as they were: generated code that compares words of memory, because a weight is looked at before every call.

Python looks at a hundred weights in 35 microseconds when all is in the cache, and in 160 when a network's weights have just passed through
it. The code knows all addresses beforehand, so that the processor waits for many of them at once.

A table has pairs (position, object) for the list of arguments, then triples (address, what is there, bits that count). Each triple of a
tensor leads to the next: its object to its TensorImpl, that to its memory and its counter of changes. The first that differs ends the walk,
so that no address is read that is not valid any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import ctypes
from functools import cache
from typing import Any

import torch

from anycann.adapters.torch.device.machine_code import ONE_ARGUMENT, address_of, load, python_function
from anycann.support.records import dataclass

_WORD = (1 << 64) - 1
_ITEMS_AT = object.__basicsize__ + 8  # where a list points to its items: behind its length
_TABLE_AT = bytes.__basicsize__ - 1  # where a bytes object has its bytes
_IMPL_WORDS, _STORAGE_WORDS = 20, 8


def watch(positions: Sequence[int], tensors: Sequence[torch.Tensor]) -> Callable[[list[Any]], bool] | None:
    """A function of a list of arguments: whether those at `positions` are these tensors, unchanged. The caller keeps the tensors.

    Seen are another tensor, other memory or another place in it, a change that torch counts, and other bytes in the middle. None where
    generated code does not run, or this torch keeps tensors in another way.
    """
    code, places = _code(), _places()
    if code is None or places is None:
        return None
    words = [len(tensors), 0, id(True), id(False), address_of(ctypes.pythonapi.Py_IncRef), id(list)]
    for position, tensor in zip(positions, tensors, strict=True):
        words += [position, id(tensor)]
    triples = [triple for tensor in tensors for triple in _triples(tensor, places)]
    words[1] = len(triples)
    words += [word for triple in triples for word in triple]
    table = b"".join(word.to_bytes(8, "little") for word in words)
    return python_function("unchanged", code.address("anycann_unchanged"), table, ONE_ARGUMENT)


def sample_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and bytes of the element in the middle of a tensor; those of the first one if it has gaps, no bytes if it has no element."""
    if not tensor.numel():
        return tensor.data_ptr(), 0
    middle = tensor.numel() // 2 if tensor.is_contiguous() else 0
    return tensor.data_ptr() + middle * tensor.element_size(), min(tensor.element_size(), 8)


@dataclass(frozen=True)
class _Places:
    """Offsets in bytes: in a tensor's object, its TensorImpl, its storage and its counter of changes."""

    impl: int
    storage: int
    offset: int  # of the first element, in elements
    counter: int
    data: int
    version: int


def _triples(tensor: torch.Tensor, at: _Places) -> Iterable[tuple[int, int, int]]:
    impl = tensor._cdata
    storage, offset, counter = (_word(impl + place) for place in (at.storage, at.offset, at.counter))
    yield id(tensor) + at.impl, impl, _WORD
    yield impl + at.storage, storage, _WORD
    yield impl + at.offset, offset, _WORD
    yield storage + at.data, _word(storage + at.data), _WORD
    yield impl + at.counter, counter, _WORD
    if counter:  # tensors of inference mode have none
        yield _part_of_word(counter + at.version, 4)
    address, size = sample_of(tensor)
    if size:
        yield _part_of_word(address, size)


def _part_of_word(address: int, size: int) -> tuple[int, int, int]:
    """The aligned word that has these bytes, and which of its bits they are; the word does not leave their page."""
    start = address & -8
    bits = (((1 << 8 * size) - 1) << 8 * (address - start)) & _WORD
    return start, _word(start) & bits, bits


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


# ---- where this torch has what
@cache
@torch.inference_mode(False)
def _places() -> _Places | None:
    """Found by comparing tensors of which it is known what they share, and what changes in them; None if something is not found once."""
    tensor, other = (torch.zeros(3001, dtype=torch.uint8, device="cpu")[1237:] for _ in range(2))
    alias, storage = tensor.detach(), tensor.untyped_storage()  # an alias shares the memory and the counter
    words, of_alias, of_other = (_words(t._cdata, _IMPL_WORDS) for t in (tensor, alias, other))
    storage_words = _words(storage._cdata, _STORAGE_WORDS)
    shared = [at for at, word in enumerate(words) if word == of_alias[at] != of_other[at] and word != storage._cdata]
    found = {
        "impl": _all_with(tensor._cdata, _words(id(tensor), 4)),
        "storage": _all_with(storage._cdata, words),
        "offset": _all_with(1237, words),
        "counter": shared,
        "data": _all_with(storage.data_ptr(), storage_words)[:1],  # and once more as what frees it
    }
    if any(len(places) != 1 for places in found.values()):
        return None
    version = _counting(words[shared[0]], tensor)
    return None if version is None else _Places(version=version, **{name: 8 * places[0] for name, places in found.items()})


def _all_with(value: int, words: list[int]) -> list[int]:
    return [at for at, word in enumerate(words) if word == value]


def _counting(counter: int, tensor: torch.Tensor) -> int | None:
    """Where in a counter the number is that goes up with each change of the tensor."""
    before = _halves(counter)
    for _ in range(5):
        tensor.add_(1)
    after = _halves(counter)
    places = [at for at in range(len(before)) if after[at] - before[at] == 5 and after[at] == tensor._version]
    return 4 * places[0] if len(places) == 1 else None


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def _halves(address: int) -> list[int]:
    return list((ctypes.c_uint32 * 8).from_address(address))


# ---- the code
@cache
def _code() -> Any:
    try:
        return load("anycann_unchanged", _ir())
    except Exception:  # no place for code, or LLVM does not know the processor: Python looks at weights
        return None


def _ir() -> str:
    header = "\n".join(
        f"  %{name}.p = getelementptr i64, ptr %table, i64 {at}\n  %{name} = load i64, ptr %{name}.p"
        for at, name in enumerate(("arguments", "triples", "yes", "no", "take_reference", "list"))
    )
    return f"""
define ptr @anycann_unchanged(ptr %self, ptr %given) {{
entry:
  %table = getelementptr i8, ptr %self, i64 {_TABLE_AT}
{header}
  %type.p = getelementptr i64, ptr %given, i64 1
  %type = load i64, ptr %type.p
  %is_list = icmp eq i64 %type, %list
  br i1 %is_list, label %begin, label %answer

begin:
  %items.p = getelementptr i8, ptr %given, i64 {_ITEMS_AT}
  %items = load ptr, ptr %items.p
  %pairs = getelementptr i64, ptr %table, i64 6
  br label %pair

pair:
  %i = phi i64 [0, %begin], [%i.next, %pair.same]
  %i.over = icmp eq i64 %i, %arguments
  br i1 %i.over, label %chains, label %pair.look

pair.look:
  %pair.p = getelementptr [2 x i64], ptr %pairs, i64 %i
  %position = load i64, ptr %pair.p
  %object.p = getelementptr i64, ptr %pair.p, i64 1
  %object = load i64, ptr %object.p
  %item.p = getelementptr i64, ptr %items, i64 %position
  %item = load i64, ptr %item.p
  %is_item = icmp eq i64 %item, %object
  br i1 %is_item, label %pair.same, label %answer

pair.same:
  %i.next = add i64 %i, 1
  br label %pair

chains:
  %first = getelementptr [2 x i64], ptr %pairs, i64 %arguments
  br label %triple

triple:
  %n = phi i64 [0, %chains], [%n.next, %triple.same]
  %n.over = icmp eq i64 %n, %triples
  br i1 %n.over, label %answer, label %triple.look

triple.look:
  %triple.p = getelementptr [3 x i64], ptr %first, i64 %n
  %address = load ptr, ptr %triple.p
  %known.p = getelementptr i64, ptr %triple.p, i64 1
  %known = load i64, ptr %known.p
  %bits.p = getelementptr i64, ptr %triple.p, i64 2
  %bits = load i64, ptr %bits.p
  %word = load i64, ptr %address
  %counted = and i64 %word, %bits
  %is_known = icmp eq i64 %counted, %known
  br i1 %is_known, label %triple.same, label %answer

triple.same:
  %n.next = add i64 %n, 1
  br label %triple

answer:
  %result.i = phi i64 [%no, %entry], [%no, %pair.look], [%no, %triple.look], [%yes, %triple]
  %result = inttoptr i64 %result.i to ptr
  %take_reference.f = inttoptr i64 %take_reference to ptr
  call void %take_reference.f(ptr %result)
  ret ptr %result
}}
"""
