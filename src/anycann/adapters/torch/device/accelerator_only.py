"""Operators that torch has for accelerators only, so that there is no cpu kernel to run: cells of recurrent networks, the statistics that
processes exchange in SyncBatchNorm, and the backward of `linear`.

Each is written for cpu tensors; `_on_host` makes a kernel of it. Formulas: those of `torch.nn.LSTM`, `GRU` and `BatchNorm2d`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.aliasing import adopt, to_host

_kept: list[Any] = []


def _lstm_cell(of_input: Any, of_hidden: Any, c: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    gates = of_input + of_hidden
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new_c = f * c + i * g
    return o * new_c.tanh(), new_c, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(grad_h: Any, grad_c: Any, c: Any, new_c: Any, workspace: Any, has_bias: bool) -> Any:
    i, f, g, o = workspace.chunk(4, 1)
    tanh_c = new_c.tanh()
    grad_h = torch.zeros_like(new_c) if grad_h is None else grad_h
    through_c = grad_h * o * (1 - tanh_c * tanh_c) + (0 if grad_c is None else grad_c)
    gates = torch.cat(
        [through_c * g * i * (1 - i), through_c * c * f * (1 - f), through_c * i * (1 - g * g), grad_h * tanh_c * o * (1 - o)], 1
    )
    return gates, through_c * f, gates.sum(0) if has_bias else torch.empty(0, device="cpu")


def _gru_cell(of_input: Any, of_hidden: Any, h: Any, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    if input_bias is not None:
        of_input, of_hidden = of_input + input_bias, of_hidden + hidden_bias
    input_r, input_z, input_n = of_input.chunk(3, 1)
    hidden_r, hidden_z, hidden_n = of_hidden.chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return (h - n) * z + n, torch.cat([r, z, n, h, hidden_n], 1)


def _gru_cell_backward(grad: Any, workspace: Any, has_bias: bool) -> Any:
    r, z, n, h, hidden_n = workspace.chunk(5, 1)
    grad_z = grad * (h - n) * z * (1 - z)
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_r = grad_n * hidden_n * r * (1 - r)
    of_input, of_hidden = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (torch.empty(0, device="cpu"), torch.empty(0, device="cpu"))
    return of_input, of_hidden, grad * z, *biases


def _statistics(x: Any, eps: float) -> Any:
    dims = [dim for dim in range(x.dim()) if dim != 1]
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return wide.mean(dims), (wide.var(dims, unbiased=False) + eps).rsqrt()


def _gathered_statistics(
    x: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any, momentum: float, eps: float, counts: Any
) -> Any:
    counts = counts.view(-1, 1).to(mean.dtype)
    total = counts.sum()
    whole_mean = (mean * counts).sum(0) / total
    variance = (((invstd**-2 - eps) + (mean - whole_mean) ** 2) * counts).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(whole_mean, alpha=momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(variance * total / (total - 1), alpha=momentum)
    return whole_mean, (variance + eps).rsqrt()


def _per_channel(values: Any, x: Any) -> Any:
    return values.view([1, -1] + [1] * (x.dim() - 2))


def _normalised(x: Any, weight: Any, bias: Any, mean: Any, invstd: Any, eps: float) -> Any:
    y = (x - _per_channel(mean, x)) * _per_channel(invstd, x)
    if weight is not None:
        y = y * _per_channel(weight, x)
    if bias is not None:
        y = y + _per_channel(bias, x)
    return y.to(x.dtype)


def _backward_sums(grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, for_input: bool, for_weight: bool, for_bias: bool) -> Any:
    dims = [dim for dim in range(x.dim()) if dim != 1]
    wide = grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad
    sums, products = wide.sum(dims), (wide * (x - _per_channel(mean, x))).sum(dims)
    return sums, products, products * invstd, sums.clone()


def _backward_elements(grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, sums: Any, products: Any, counts: Any) -> Any:
    total = counts.sum().to(sums.dtype)
    scale = invstd if weight is None else invstd * weight
    centred = grad - _per_channel(sums / total, x) - (x - _per_channel(mean, x)) * _per_channel(invstd * invstd * products / total, x)
    return (centred * _per_channel(scale, x)).to(x.dtype)


def _linear_backward(x: Any, grad: Any, weight: Any, mask: list[bool]) -> Any:
    """Of operators that run on any device, so that no alias is made for the npu."""
    if grad.dim() == x.dim() == 2:
        rows, inputs, by_rows = grad, x, grad.mm(weight) if mask[0] else None
    else:
        rows, inputs = (one.reshape(-1, one.shape[-1]) if one.dim() > 1 else one.reshape(1, -1) for one in (grad, x))
        by_rows = rows.mm(weight).view(x.shape) if mask[0] else None
    of_x = x.new_empty(0) if by_rows is None else by_rows
    of_weight = rows.t().mm(inputs) if mask[1] else x.new_empty(0)
    return of_x, of_weight, rows.sum(0) if mask[2] else x.new_empty(0)


def _linear_backward_shapes(x: Any, grad: Any, weight: Any, mask: list[bool]) -> Any:
    sizes = x.shape, weight.shape, (weight.shape[0],)
    return tuple(grad.new_empty(size if wanted else (0,)) for size, wanted in zip(sizes, mask, strict=True))


def _spatial_convolution(x: Any, weight: Any, bias: Any, padding: Any, stride: Any = 1) -> Any:
    return torch.nn.functional.conv2d(x, weight, bias, stride, padding if len(padding) == 2 else padding[0])


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """The npu kernel that runs `function` on aliases of its arguments."""

    @wraps(function)
    def kernel(*args: Any, **keywords: Any) -> Any:
        index = next((value.get_device() for value in args if isinstance(value, torch.Tensor) and value.is_npu), devices.current())
        result = function(*(to_host(value) for value in args), **{name: to_host(value) for name, value in keywords.items()})
        return tuple(adopt(item, index) for item in result) if isinstance(result, tuple) else adopt(result, index)

    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    name: _on_host(function)
    for name, function in {
        "_thnn_fused_lstm_cell": _lstm_cell,
        "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
        "_thnn_fused_gru_cell": _gru_cell,
        "_thnn_fused_gru_cell_backward": _gru_cell_backward,
        "batch_norm_stats": _statistics,
        "batch_norm_gather_stats_with_counts": _gathered_statistics,
        "batch_norm_elemt": _normalised,
        "batch_norm_backward_reduce": _backward_sums,
        "batch_norm_backward_elemt": _backward_elements,
        "convolution_overrideable": torch.convolution,
        "_nnpack_spatial_convolution": _spatial_convolution,
    }.items()
}


def _normalised_into(*args: Any, out: Any) -> Any:
    result = KERNELS["batch_norm_elemt"](*args)
    return out.resize_(result.shape).copy_(result)


KERNELS["batch_norm_elemt.out"] = _normalised_into
KERNELS["linear_backward"] = _linear_backward


def install() -> None:
    """Give `linear_backward`, which autograd calls once `linear` has a kernel, to the cpu and to shape inference as well."""
    host = torch.library.Library("aten", "IMPL", "CPU")
    host.impl("linear_backward", _linear_backward)
    shapes = torch.library.Library("aten", "IMPL", "Meta")
    shapes.impl("linear_backward", _linear_backward_shapes)
    _kept.extend((host, shapes))
