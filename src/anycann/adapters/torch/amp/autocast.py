"""The kernels of autocast for the npu. torch has none for a device of others: here each is a function that casts and calls on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import threading
from typing import Any, TypeAlias

import torch
from torch._C import DispatchKey, DispatchKeySet

from anycann.adapters.torch.amp.lists import LOWER, SINGLE, SINGLE_BY_DTYPE, SINGLE_BY_OVERLOAD, WIDEST

Kernel: TypeAlias = Callable[..., Any]

_KEYS = DispatchKeySet(DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]
_without_autocast = torch._C._ExcludeDispatchKeyGuard
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_libraries: list[Any] = []
_float32_losses = False


class _Casts(threading.local):
    """Weights in the lower precision, by id, with the weight: one cast serves all their uses until the outermost autocast ends."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[Any, Any]] = {}


_casts = _Casts()


def install() -> None:
    """Register the kernels; operators on no list pass, with the dtypes they are given (`device/registration.py`)."""
    listed = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    _libraries.append(listed)
    for name, kernel in _kernels():
        listed.impl(name, kernel)
    listed.impl("binary_cross_entropy", _probabilities(_operator("binary_cross_entropy")))
    torch.clear_autocast_cache = _clearing(torch.clear_autocast_cache)


def _kernels() -> Iterator[tuple[str, Kernel]]:
    makers = ((LOWER, _lower), (SINGLE, _single), (SINGLE_BY_DTYPE, _single_by_dtype), (WIDEST, _widest))
    for names, make in makers:
        yield from ((name, make(_operator(name))) for name in names)
    for name, overload in SINGLE_BY_OVERLOAD.items():
        yield name, _single_by_overload(_operator(name), _operator(overload))


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _lower(op: Any) -> Kernel:
    def kernel(*args: Any, **keywords: Any) -> Any:
        with _without_autocast(_KEYS):
            return _called(op, torch.get_autocast_dtype("npu"), args, keywords)

    return kernel


def _single(op: Any) -> Kernel:
    def kernel(*args: Any, **keywords: Any) -> Any:
        with _without_autocast(_KEYS):
            return _called(op, torch.float32, args, keywords)

    return kernel


def _single_by_dtype(op: Any) -> Kernel:
    """`dtype` may also come as a positional argument, where the schema has it so."""
    place = [argument.name for argument in op._schema.arguments].index("dtype")

    def kernel(*args: Any, **keywords: Any) -> Any:
        with _without_autocast(_KEYS):
            given = keywords.get("dtype") or (args[place] if len(args) > place else None)
            if given is None and _eligible(args[0]):
                keywords["dtype"] = torch.float32
                args = args[:place]
            return op(*args, **keywords)

    return kernel


def _single_by_overload(op: Any, with_dtype: Any) -> Kernel:
    def kernel(*args: Any, **keywords: Any) -> Any:
        with _without_autocast(_KEYS):
            return with_dtype(*args, **keywords, dtype=torch.float32) if _eligible(args[0]) else op(*args, **keywords)

    return kernel


def _widest(op: Any) -> Kernel:
    def kernel(*args: Any, **keywords: Any) -> Any:
        with _without_autocast(_KEYS):
            dtypes = {tensor.dtype for tensor in _tensors((*args, *keywords.values())) if _eligible(tensor)}
            if len(dtypes) < 2:
                return op(*args, **keywords)
            return _called(op, torch.float32, args, keywords)  # float16 and bfloat16 have no common dtype that is narrower

    return kernel


def take_float32_losses(taken: bool) -> None:
    """Whether cross entropies of probabilities are computed under autocast where they are float32: apex takes them, torch never does."""
    global _float32_losses
    _float32_losses = taken


def _probabilities(op: Any) -> Kernel:
    def kernel(*args: Any, **keywords: Any) -> Any:
        narrow = any(tensor.dtype in _FLOATS[:2] for tensor in _tensors((*args, *keywords.values())))
        if narrow or not _float32_losses:
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
                "binary_cross_entropy_with_logits or BCEWithLogitsLoss, or compute this loss outside autocast in float32"
            )
        with _without_autocast(_KEYS):
            return op(*args, **keywords)

    return kernel


def _called(op: Any, dtype: torch.dtype, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    cast = [_cast(value, dtype) for value in args]
    if keywords:
        keywords = {name: _cast(value, dtype) for name, value in keywords.items()}
    return op(*cast, **keywords)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype is dtype or not _eligible(value):
            return value
        if value.requires_grad and value.is_leaf and value.dtype is torch.float32 and torch.is_autocast_cache_enabled():
            return _cast_weight(value, dtype)
        return value.to(dtype)
    if type(value) in (list, tuple):
        return type(value)(_cast(item, dtype) for item in value)
    return value


def _cast_weight(weight: Any, dtype: torch.dtype) -> Any:
    """Also where a program computes without gradients: the cast may serve a later use that wants them."""
    known = _casts.of.get(id(weight))
    if known is not None and known[0] is weight and known[1].dtype is dtype:
        return known[1]
    with torch.enable_grad():
        cast = weight.to(dtype)
    _casts.of[id(weight)] = weight, cast
    return cast


def _eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _FLOATS and not value.is_cpu


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from _tensors(value)


def _clearing(clear: Callable[[], None]) -> Callable[[], None]:
    """torch calls this when the outermost autocast ends."""

    def clear_autocast_cache() -> None:
        _casts.of.clear()
        clear()

    return clear_autocast_cache
