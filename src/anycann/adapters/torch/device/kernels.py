"""An npu kernel for any operator that has a cpu kernel: aliases in, torch's cpu kernel on the same memory, results adopted.

There is one maker for each kind of operator. Which kind an operator is, its schema says (`signature.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import adopt, adopt_or_import, host_alias, mark_storage, to_host
from anycann.adapters.torch.device.failures import explained, mixed_devices
from anycann.adapters.torch.device.generators import default_generator
from anycann.adapters.torch.device.host_call import host_call
from anycann.adapters.torch.device.signature import Signature, signature_of

Kernel: TypeAlias = Callable[..., Any]

_HOST = torch.device("cpu")
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
# These take indices, or values, from the host, as those of Ascend's transformer library take lengths.
_TAKE_HOST_TENSORS = frozenset(
    {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put", "copy_", "_foreach_copy_"}
)


def kernel_for(op: Any) -> Kernel:
    """The npu kernel of a `torch._ops.OpOverload` with a cpu kernel."""
    signature = signature_of(op)
    kernel = _kernel_for(op, signature)
    return _seeded(kernel, signature.names.index("generator")) if "generator" in signature.names else kernel


def _kernel_for(op: Any, signature: Signature) -> Kernel:
    if signature.outs:
        return _filling(op, signature)
    if signature.view is not None:
        return _viewing(op, signature)
    if signature.in_place is not None:
        return _in_place(op, signature)
    if signature.new_results_only:
        return _functional(op, signature)
    return _mixed(op, signature)


def _seeded(kernel: Kernel, position: int) -> Kernel:
    """`kernel` with the generator of its npu where it is given none."""

    def seeded(*args: Any, **keywords: Any) -> Any:
        if len(args) <= position and keywords.get("generator") is None:
            keywords["generator"] = default_generator(_first_index(args, keywords))
        return kernel(*args, **keywords)

    return seeded


def _first_index(args: tuple[Any, ...], keywords: dict[str, Any]) -> int:
    """The npu of the first tensor on one, else of the device that is asked for, else the current one."""
    for value in (*args, *keywords.values()):
        if isinstance(value, torch.Tensor) and value.is_npu:
            return int(value.get_device())
    return devices.index_of(keywords.get("device"))


class Arguments:
    """Turns the arguments of one operator into what its cpu kernel takes, and tells the npu they are on."""

    def __init__(self, op: Any, signature: Signature):
        self.op = op
        self.tensors = signature.tensors
        self.lists = signature.lists
        library, _, name = op._schema.name.partition("::")
        self.host_tensors_allowed = library == "atb" or name in _TAKE_HOST_TENSORS or "scalars" in signature.names

    def to_host(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[Any], int, bool]:
        """The positional arguments on the host, the npu of the tensors (-1: none is on an npu), and whether some were on the host.

        Changes `keywords` in place. Raises RuntimeError if the tensors are on several devices.
        """
        new, index, host_seen = list(args), -1, False
        index, host_seen = self._aliased(new, [at for at in self.tensors if at < len(new)], index, host_seen, args, keywords)
        for at in self.lists:
            if at < len(new) and new[at]:
                new[at] = list(new[at])
                index, host_seen = self._aliased(new[at], range(len(new[at])), index, host_seen, args, keywords)
        if keywords:
            index, host_seen = self._keywords_to_host(keywords, index, host_seen, args)
        if host_seen and index >= 0 and not self.host_tensors_allowed:
            self._only_scalars_on_host(args, keywords)
        return new, index, host_seen

    def _aliased(self, values: Any, places: Iterable[Any], index: int, host_seen: bool, args: Any, keywords: Any) -> tuple[int, bool]:
        """Put aliases of npu tensors in their places in a list or by names; the npu they are on, and whether some are on the host."""
        for at in places:
            tensor = values[at]
            if isinstance(tensor, torch.Tensor):
                where = tensor.get_device()
                if where >= 0:
                    index = self._same(index, where, args, keywords)
                    values[at] = host_alias(tensor)
                else:
                    host_seen = True
        return index, host_seen

    def _keywords_to_host(self, keywords: dict[str, Any], index: int, host_seen: bool, args: Any) -> tuple[int, bool]:
        index, host_seen = self._aliased(keywords, tuple(keywords), index, host_seen, args, dict(keywords))
        for name, value in keywords.items():
            if isinstance(value, torch.device):
                index = devices.index_of(value) if value.type == devices.NAME else index
                keywords[name] = _HOST
            elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
                index = next((tensor.get_device() for tensor in value if tensor.is_npu), index)
                keywords[name] = to_host(value)
        return index, host_seen

    def _same(self, index: int, where: int, args: Any, keywords: Any) -> int:
        if index >= 0 and where != index:
            raise mixed_devices(self.op, args, keywords)
        return where

    def _only_scalars_on_host(self, args: Any, keywords: Any) -> None:
        given = [*(args[at] for at in self.tensors if at < len(args)), *keywords.values()]
        given += [tensor for at in self.lists if at < len(args) and args[at] for tensor in args[at]]
        if any(isinstance(value, torch.Tensor) and not value.is_npu and value.dim() > 0 for value in given):
            raise mixed_devices(self.op, args, keywords)


def _functional(op: Any, signature: Signature) -> Kernel:
    """New tensors from the arguments."""
    convert, call, one = Arguments(op, signature).to_host, host_call(op, signature.tensors), signature.one_tensor

    def kernel(*args: Any, **keywords: Any) -> Any:
        given, index, host_seen = convert(args, keywords)
        try:
            result = call(*given, **keywords)
        except Exception as error:
            raise explained(error, op, args, keywords) from None
        if index < 0:
            index = devices.current()
        if one and not host_seen:
            return adopt(result, index)
        return _place(result, index, _host_tensors(args, keywords) if host_seen else [])

    return kernel


def _place(result: Any, index: int, hosts: list[Any]) -> Any:
    """The new tensors of a result on npu `index`; those in the memory of `hosts` stay where they are too."""
    if isinstance(result, torch.Tensor):
        return adopt_or_import(result, index, hosts) if hosts else adopt(result, index)
    if isinstance(result, (tuple, list)):
        return type(result)(_place(item, index, hosts) for item in result)
    return result


def _host_tensors(args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    given = [*args, *keywords.values()]
    return [value for value in given if isinstance(value, torch.Tensor) and value.is_cpu]


def _in_place(op: Any, signature: Signature) -> Kernel:
    """One argument is written and returned; no number of the host is, by tensors of an npu."""
    arguments = Arguments(op, signature)
    convert, call = arguments.to_host, host_call(op, signature.tensors)
    assert signature.in_place is not None
    written, hosts_allowed = signature.in_place.position, arguments.host_tensors_allowed

    def kernel(*args: Any, **keywords: Any) -> Any:
        given, index, host_seen = convert(args, keywords)
        if host_seen and index >= 0 and not hosts_allowed and not args[written].is_npu:
            raise mixed_devices(op, args, keywords)
        try:
            call(*given, **keywords)
        except Exception as error:
            raise explained(error, op, args, keywords) from None
        return args[written]

    return kernel


def _viewing(op: Any, signature: Signature) -> Kernel:
    """The results lie in an argument: they are made again as views of the npu tensor, so that torch knows them as such."""
    assert signature.view is not None
    base_at = signature.view.position
    restride = torch.ops.aten.as_strided.default.redispatch

    def as_view(base: Any, view: Any) -> Any:
        start = (view.data_ptr() - base.data_ptr()) // base.element_size() + base.storage_offset() if view.numel() else 0
        return restride(_KEYS, base, view.shape, view.stride(), start)

    def kernel(*args: Any, **keywords: Any) -> Any:
        base = args[base_at]
        try:
            result = op._op(*(to_host(value) for value in args), **keywords)
        except Exception as error:
            raise explained(error, op, args, keywords) from None
        return as_view(base, result) if isinstance(result, torch.Tensor) else [as_view(base, view) for view in result]

    return kernel


def _mixed(op: Any, signature: Signature) -> Kernel:
    """Some results are arguments that were written, others are new; or there are none."""
    versioned = signature.versioned_list
    convert, call, returned = Arguments(op, signature).to_host, host_call(op, signature.tensors), signature.returned

    def kernel(*args: Any, **keywords: Any) -> Any:
        originals = dict(keywords)
        given, index, host_seen = convert(args, keywords)
        try:
            result = call(*given, **keywords)
        except Exception as error:
            raise explained(error, op, args, originals) from None
        if versioned >= 0:
            torch.autograd.graph.increment_version(args[versioned])
        if not returned:
            return None
        index, hosts = (index if index >= 0 else devices.current()), _host_tensors(args, originals) if host_seen else []
        results = [
            _place(item, index, hosts) if entry is None else _argument(args, originals, entry.position, entry.name)
            for entry, item in zip(returned, result if len(returned) > 1 else (result,), strict=True)
        ]
        return results[0] if len(returned) == 1 else tuple(results)

    return kernel


def _argument(args: tuple[Any, ...], keywords: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if position < len(args) else keywords[name]


def _filling(op: Any, signature: Signature) -> Kernel:
    """`out=`: torch computes new tensors, which are copied into the given ones, resized if they have another shape.

    A given tensor may overlap an argument, and a kernel that fails must leave it as it was.
    """
    outs, results = signature.outs, len(signature.returned)
    convert, call = Arguments(op, signature).to_host, host_call(op, signature.tensors)

    def kernel(*args: Any, **keywords: Any) -> Any:
        filled = [keywords[name] for name in outs]
        others = {name: value for name, value in keywords.items() if name not in outs}
        given, index, _ = convert(args, others)
        if index >= 0 and any(out.get_device() != index for out in tree_leaves(filled)):
            raise mixed_devices(op, args, keywords)
        fresh = [_empty_like(out) for out in filled]
        try:
            call(*given, **others, **dict(zip(outs, fresh, strict=True)))
        except Exception as error:
            raise explained(error, op, args, keywords) from None
        for out, values in zip(filled, fresh, strict=True):
            _fill(out, values)
        return tuple(filled) if results > 1 else filled[0] if results else None

    return kernel


def _empty_like(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return torch.empty(out.shape, dtype=out.dtype, device="cpu")
    return [_empty_like(tensor) for tensor in out]


def _fill(out: Any, values: Any) -> None:
    if not isinstance(out, torch.Tensor):
        for one, value in zip(out, values, strict=True):
            _fill(one, value)
        return
    if out.shape != values.shape:
        out.resize_(values.shape)
        mark_storage(out)
    host_alias(out).copy_(values)
