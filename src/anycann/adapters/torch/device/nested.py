"""Strided nested tensors on the npu: torch's own class around a buffer that is an npu tensor.

torch's kernels for the cpu take such a tensor apart and compute on its buffer by the dispatcher, so they run as they are, and the npu's
kernels below them. Tensors of the layout `torch.jagged` are a class in Python and need nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# make a nested tensor around the buffer of a dense one, whose sizes are on the cpu
MAKERS = ("_nested_from_padded", "_nested_view_from_buffer", "_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned")

_HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensorCPU)
_kept: list[torch.library.Library] = []


def install(operator: Callable[[str], Any]) -> None:
    """Give every operator that has a cpu kernel for nested tensors to those of the npu. operator: an overload of aten by its name."""
    library = torch.library.Library("aten", "IMPL", "NestedTensorPrivateUse1")
    for qualified in torch._C._dispatch_get_registrations_for_dispatch_key("NestedTensorCPU"):
        space, _, name = qualified.partition("::")
        if space == "aten":
            library.impl(name, _OWN.get(name) or _as_on_the_cpu(operator, name))
    _kept.append(library)


def _as_on_the_cpu(operator: Callable[[str], Any], name: str) -> Callable[..., Any]:
    """torch's kernel for nested tensors of the cpu; the operator is looked up when it is first called."""
    redispatch: Callable[..., Any] | None = None
    wanted: tuple[bool, ...] = ()  # whether an argument is a tensor: a number comes without the one that the dispatcher wrapped it in

    def kernel(*args: Any, **keywords: Any) -> Any:
        nonlocal redispatch, wanted
        if redispatch is None:
            op = operator(name)
            wanted = tuple(isinstance(argument.type, torch.TensorType) for argument in op._schema.arguments)
            redispatch = op.redispatch
        given = [
            torch.tensor(a) if tensor and isinstance(a, (bool, int, float, complex)) else a for a, tensor in zip(args, wanted, strict=False)
        ]
        return redispatch(_HOST_KEYS, *given, **keywords)

    return kernel


def _native_layer_norm(x: Any, shape: list[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """Of the buffer: torch's kernel for nested tensors of the cpu calls the one below it without the dispatcher."""
    whole = x.contiguous()
    result, mean, deviation = torch.ops.aten.native_layer_norm(whole.values().reshape(-1, *shape), shape, weight, bias, eps)
    parts = (whole._nested_tensor_size(), whole._nested_tensor_strides(), whole._nested_tensor_storage_offsets())
    return torch._nested_view_from_buffer(result.reshape(-1), *parts), mean, deviation


_OWN = {"native_layer_norm": _native_layer_norm}
