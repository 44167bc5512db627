"""Sparse tensors on the npu, COO and compressed (CSR, CSC, BSR, BSC): torch's own C++ classes with indices and values that are npu tensors.

What makes such a tensor, and what asks for its parts, is torch's code for the cpu as it is; every other operator runs the cpu's sparse
kernel on aliases of the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.failures import explained
from anycann.support.records import dataclass

_aten = torch.ops.aten


@dataclass(frozen=True)
class _Family:
    """Layouts of one C++ class: the dispatch keys of its kernels, and the operators that only hold its parts, or ask for them."""

    host: str
    npu: str
    on_parts: frozenset[str]

    @property
    def host_keys(self) -> Any:
        return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, self.host))


_COO = _Family("SparseCPU", "SparsePrivateUse1", frozenset((
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_indices", "_values", "indices", "values", "_nnz",
    "sparse_dim", "dense_dim", "_dimI", "_dimV", "is_coalesced", "_coalesced_", "empty.memory_format", "copy_sparse_to_sparse_",
    "sparse_resize_", "sparse_resize_and_clear_",
)))  # fmt: skip
_COMPRESSED = _Family("SparseCsrCPU", "SparseCsrPrivateUse1", frozenset((
    "crow_indices", "col_indices", "ccol_indices", "row_indices", "values", "_nnz", "sparse_dim", "dense_dim", "empty.memory_format",
    "resize_as_sparse_",
)))  # fmt: skip
_BY_ROWS = (_aten.crow_indices.default, _aten.col_indices.default, _aten.values.default)
_BY_COLUMNS = (_aten.ccol_indices.default, _aten.row_indices.default, _aten.values.default)
# what asks for the parts of a tensor, indices first
_PARTS = {
    torch.sparse_coo: (_aten._indices.default, _aten._values.default),
    torch.sparse_csr: _BY_ROWS,
    torch.sparse_bsr: _BY_ROWS,
    torch.sparse_csc: _BY_COLUMNS,
    torch.sparse_bsc: _BY_COLUMNS,
}
_ASKS_FOR_GRADIENTS = "_sparse_mm_reduce_impl"  # its kernel: without, it leaves out what its own backward reads
_kept: list[Any] = []


def install(operator: Callable[[str], Any]) -> None:
    """Register a kernel for every operator with a sparse cpu kernel; `operator` finds an overload of aten by name."""
    for family in (_COO, _COMPRESSED):
        library = torch.library.Library("aten", "IMPL", family.npu)
        for qualified in torch._C._dispatch_get_registrations_for_dispatch_key(family.host):
            namespace, _, name = qualified.partition("::")
            if namespace == "aten":
                library.impl(name, _made_when_called(name, operator, family))
        _kept.append(library)


def _made_when_called(name: str, operator: Callable[[str], Any], family: _Family) -> Callable[..., Any]:
    """The kernel of aten's `name`: finding out what an operator is takes longer than registering it, and most are never called."""
    make = cache(lambda: _on_npu_tensor(operator(name), family) if name in family.on_parts else _on_host(operator(name)))
    return lambda *args, **keywords: make()(*args, **keywords)


def _on_npu_tensor(op: Any, family: _Family) -> Callable[..., Any]:
    redispatch, keys = op.redispatch, family.host_keys

    def kernel(*args: Any, **keywords: Any) -> Any:
        if keywords.get("device") is None:
            return redispatch(keys, *args, **keywords)
        before = devices.current()
        devices.make_current(devices.index_of(keywords["device"]))  # where torch makes the parts of a new tensor
        try:
            return redispatch(keys, *args, **keywords)
        finally:
            devices.make_current(before)

    return kernel


def to_host(tensor: Any) -> Any:
    """The sparse cpu tensor on the memory of a sparse npu tensor's indices and values."""
    from anycann.adapters.torch.device.aliasing import host_alias

    return _of_parts([host_alias(part) for part in _parts(tensor)], tensor)


def to_npu(tensor: Any, index: int) -> Any:
    """The sparse npu tensor of the parts of a sparse cpu tensor that nobody else holds. Raises RuntimeError for other layouts."""
    from anycann.adapters.torch.device.aliasing import adopt

    if tensor.layout not in _PARTS:
        raise RuntimeError(f"layout {tensor.layout} is not supported on npu; accepted: torch.strided, {', '.join(map(str, _PARTS))}")
    return _of_parts([adopt(part.detach(), index) for part in _parts(tensor)], tensor)


def _parts(tensor: Any) -> list[Any]:
    return [part(tensor) for part in _PARTS[tensor.layout]]


def _of_parts(parts: list[Any], like: Any) -> Any:
    """The sparse tensor of indices and values, with the sizes of `like`, where the parts are, whatever the default device is."""
    device = parts[0].device
    if like.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(*parts, like.shape, device=device, is_coalesced=like.is_coalesced(), check_invariants=False)
    return torch.sparse_compressed_tensor(*parts, like.shape, layout=like.layout, device=device, check_invariants=False)


def _host_value(value: Any, written: bool = False) -> Any:
    if isinstance(value, torch.Tensor) and value.layout in _PARTS:
        alias = to_host(value) if value.device.type == devices.NAME else value
        return alias.clone() if written and value.layout != torch.sparse_coo else alias  # memory of the npu cannot grow on the host
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
        given = [_host_value(value, at in written) for at, value in enumerate(args)]
        named = {name: _host_value(value, names.index(name) in written) for name, value in keywords.items()}
        if op.name() == f"aten::{_ASKS_FOR_GRADIENTS}":
            given[:2] = (alias.requires_grad_(value.requires_grad) for alias, value in zip(given[:2], args, strict=False))
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
            _aten.copy_sparse_to_sparse_.default.redispatch(_COO.host_keys, target, to_npu(alias, index), False)
        elif target.layout in _PARTS:
            found = to_npu(alias, index)
            _aten.resize_as_sparse_.default.redispatch(_COMPRESSED.host_keys, target, found)
            for mine, new in zip(_parts(target), _parts(found), strict=True):
                mine.copy_(new)
        first = target if first is None else first
    return first
