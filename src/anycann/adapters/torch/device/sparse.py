"""Sparse tensors (COO) on the npu: torch's own C++ class with indices and values that are npu tensors.

What makes such a tensor, and what asks for its parts, is torch's code for the cpu as it is; every other operator runs the cpu's sparse
kernel on aliases of the parts. Compressed layouts (CSR and its like) are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.failures import explained

_aten = torch.ops.aten
_HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCPU)
# These only hold indices and values, or ask for them.
_PARTS = (
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_indices", "_values", "indices", "values", "_nnz",
    "sparse_dim", "dense_dim", "_dimI", "_dimV", "is_coalesced", "_coalesced_", "empty.memory_format", "copy_sparse_to_sparse_",
    "sparse_resize_", "sparse_resize_and_clear_",
)  # fmt: skip
_kept: list[Any] = []


def install(operator: Callable[[str], Any]) -> None:
    """Register a kernel for every operator with a sparse cpu kernel; `operator` finds an overload of aten by name."""
    library = torch.library.Library("aten", "IMPL", "SparsePrivateUse1")
    for qualified in torch._C._dispatch_get_registrations_for_dispatch_key("SparseCPU"):
        namespace, _, name = qualified.partition("::")
        if namespace == "aten":
            library.impl(name, _made_when_called(name, operator))
    _kept.append(library)


def _made_when_called(name: str, operator: Callable[[str], Any]) -> Callable[..., Any]:
    """The kernel of aten's `name`: finding out what an operator is takes longer than registering it, and most are never called."""
    make = cache(lambda: (_on_npu_tensor if name in _PARTS else _on_host)(operator(name)))
    return lambda *args, **keywords: make()(*args, **keywords)


def _on_npu_tensor(op: Any) -> Callable[..., Any]:
    redispatch = op.redispatch

    def kernel(*args: Any, **keywords: Any) -> Any:
        if keywords.get("device") is None:
            return redispatch(_HOST_KEYS, *args, **keywords)
        before = devices.current()
        devices.make_current(devices.index_of(keywords["device"]))  # where torch makes the parts of a new tensor
        try:
            return redispatch(_HOST_KEYS, *args, **keywords)
        finally:
            devices.make_current(before)

    return kernel


def to_host(tensor: Any) -> Any:
    """The sparse cpu tensor on the memory of a sparse npu tensor's indices and values."""
    from anycann.adapters.torch.device.aliasing import host_alias

    parts = [host_alias(part(tensor)) for part in (_aten._indices.default, _aten._values.default)]
    return _of_parts(parts, tensor)


def to_npu(tensor: Any, index: int) -> Any:
    """The sparse npu tensor of the parts of a sparse cpu tensor that nobody else holds. Raises RuntimeError for other layouts."""
    from anycann.adapters.torch.device.aliasing import adopt

    if tensor.layout != torch.sparse_coo:
        raise RuntimeError(f"layout {tensor.layout} is not supported on npu; accepted: torch.strided, torch.sparse_coo")
    parts = [adopt(part(tensor).detach(), index) for part in (_aten._indices.default, _aten._values.default)]
    return _of_parts(parts, tensor)


def _of_parts(parts: list[Any], like: Any) -> Any:
    """The sparse tensor of indices and values, with the sizes of `like`, where the parts are, whatever the default device is."""
    device, coalesced = parts[0].device, like.is_coalesced()
    return torch.sparse_coo_tensor(*parts, like.shape, device=device, is_coalesced=coalesced, check_invariants=False)


def _host_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.layout == torch.sparse_coo:
        return to_host(value) if value.device.type == devices.NAME else value
    if type(value) in (list, tuple):
        return type(value)(_host_value(item) for item in value)
    from anycann.adapters.torch.device import aliasing

    return aliasing.to_host(value)


def _on_host(op: Any) -> Callable[..., Any]:
    """The kernel that runs the cpu's on aliases; an argument that is written gets what became of its alias."""
    written = [at for at, argument in enumerate(op._schema.arguments) if argument.alias_info is not None and argument.alias_info.is_write]
    names = [argument.name for argument in op._schema.arguments]

    def kernel(*args: Any, **keywords: Any) -> Any:
        from anycann.adapters.torch.device import aliasing

        everything = [*args, *keywords.values()]
        index = next((value.get_device() for value in everything if isinstance(value, torch.Tensor) and value.is_npu), devices.current())
        given, named = [_host_value(value) for value in args], {name: _host_value(value) for name, value in keywords.items()}
        try:
            result = op._op(*given, **named)
        except Exception as error:
            raise explained(error, op, args, keywords) from None
        if written:
            return _write_back(written, names, (args, keywords), (given, named), index)
        return aliasing.to_npu(result, index)

    return kernel


def _write_back(written: list[int], names: list[str], originals: Any, aliases: Any, index: int) -> Any:
    """Sparse arguments take the parts of their aliases; dense ones share memory already. The first written argument is the result."""
    first = None
    for at in written:
        positional = at < len(originals[0])
        target, alias = (group[0][at] if positional else group[1][names[at]] for group in (originals, aliases))
        if target.layout == torch.sparse_coo:
            _aten.copy_sparse_to_sparse_.default.redispatch(_HOST_KEYS, target, to_npu(alias, index), False)
        first = target if first is None else first
    return first
