"""Quantised tensors of torch on the npu: their integers, scales and floats, and the way to the host. No operator computes with them.

torch's cpu kernel makes them (`quantize_per_tensor`); their memory and their quantiser are the host's, so what only looks at the quantiser
runs the cpu's code, and the integers are another tensor on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import adopt
from anycann.adapters.torch.device.failures import call_text

_HOST = torch._C.DispatchKeySet(torch._C.DispatchKey.QuantizedCPU)
_INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
_LOOKS = ("q_scale", "q_zero_point", "qscheme", "q_per_channel_axis", "view", "as_strided")
_TENSORS_OF_QUANTISER = ("q_per_channel_scales", "q_per_channel_zero_points")
_kept: list[Any] = []


def install(operator: Callable[[str], Any]) -> None:
    """Register the kernels; `operator` gives an overload of aten by its name."""
    fallback = torch.library.Library("_", "IMPL", "QuantizedPrivateUse1")
    fallback.fallback(_refused)
    aten = torch.library.Library("aten", "IMPL", "QuantizedPrivateUse1")
    for name in _LOOKS:
        aten.impl(name, _by_host_code(operator(name)))
    for name in _TENSORS_OF_QUANTISER:
        aten.impl(name, _moved(_by_host_code(operator(name))))
    for name, kernel in {"int_repr": _integers, "dequantize.self": _floats, "clone": _cloned, "_to_copy": _copied}.items():
        aten.impl(name, kernel)
    _kept.extend((fallback, aten))


def _by_host_code(op: Any) -> Callable[..., Any]:
    redispatch = op.redispatch

    def kernel(*args: Any, **keywords: Any) -> Any:
        return redispatch(_HOST, *args, **keywords)

    return kernel


def _moved(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def moved(tensor: Any) -> Any:
        return kernel(tensor).to(tensor.device)

    return moved


def _integers(tensor: Any) -> Any:
    """A copy of the integers."""
    empty = torch.empty(0, dtype=_known(tensor), device=tensor.device)
    return empty.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()).clone()


def _known(tensor: Any) -> torch.dtype:
    if tensor.dtype not in _INTEGERS:
        raise NotImplementedError(f"{tensor.dtype} on the npu: its integers are packed; accepted: {', '.join(map(str, _INTEGERS))}")
    return _INTEGERS[tensor.dtype]


def _on_host(tensor: Any) -> Any:
    """The same quantised tensor on the host."""
    integers = tensor.int_repr().cpu()
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch._make_per_tensor_quantized_tensor(integers, tensor.q_scale(), tensor.q_zero_point())
    scales, zeros = tensor.q_per_channel_scales().cpu(), tensor.q_per_channel_zero_points().cpu()
    return torch._make_per_channel_quantized_tensor(integers, scales, zeros, tensor.q_per_channel_axis())


def _floats(tensor: Any) -> Any:
    return _on_host(tensor).dequantize().to(tensor.device)


def _cloned(tensor: Any, **keywords: Any) -> Any:
    return adopt(_on_host(tensor), tensor.get_device())


def _copied(tensor: Any, **keywords: Any) -> Any:
    """To the host, to an npu, or from the host to one."""
    device = torch.device(keywords.get("device") or tensor.device)
    if keywords.get("dtype") not in (None, tensor.dtype):
        raise NotImplementedError(f"a quantised tensor of {tensor.dtype} keeps its dtype, got {keywords['dtype']}; dequantize() first")
    return _on_host(tensor) if device.type == "cpu" else adopt(_on_host(tensor), devices.index_of(device))


def _refused(op: Any, *args: Any, **keywords: Any) -> Any:
    raise NotImplementedError(f"{op} computes with no quantised tensors on the npu; dequantize() first\nin {call_text(op, args, keywords)}")
