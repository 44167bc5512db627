"""apex.fp16_utils: networks in 16 bits by hand, with float32 masters of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_ as clip_grad_norm

from anycann.adapters.torch.apex.levels import cast

__all__ = [
    "BN_convert_float",
    "FP16Model",
    "clip_grad_norm",
    "convert_module",
    "convert_network",
    "master_params_to_model_params",
    "model_grads_to_master_grads",
    "network_to_half",
    "prep_param_lists",
    "to_python_float",
    "tofp16",
]


class tofp16(nn.Module):  # noqa: N801  # apex's name
    """Its input in float16."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """`values` in float16."""
        return values.half()


class FP16Model(nn.Module):
    """A network in float16, batch norm in float32, whose inputs are cast."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = convert_network(network, torch.float16)

    def forward(self, *inputs: Any) -> Any:
        """The network of the inputs in float16."""
        return self.network(*cast(inputs, torch.float16))


def network_to_half(network: nn.Module) -> nn.Module:
    """`network` in float16 but for batch norm, behind the cast of its input."""
    return nn.Sequential(tofp16(), BN_convert_float(network.half()))


def BN_convert_float(module: nn.Module) -> nn.Module:  # noqa: N802  # apex's name
    """Batch norm in float32 again, in place."""
    for each in module.modules():
        if isinstance(each, _BatchNorm) and each.affine:
            each.float()
    return module


def convert_module(module: nn.Module, dtype: torch.dtype) -> None:
    """The floating point parameters and buffers of one module, without those in it, in another dtype."""
    for parameter in module.parameters(recurse=False):
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
            if parameter.grad is not None:
                parameter.grad.data = parameter.grad.data.to(dtype)
    for buffer in module.buffers(recurse=False):
        if buffer.is_floating_point():
            buffer.data = buffer.data.to(dtype)


def convert_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """`network` in another dtype but for batch norm, in place."""
    for module in network.modules():
        if not (isinstance(module, _BatchNorm) and module.affine):
            convert_module(module, dtype)
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()
    return network


def prep_param_lists(model: nn.Module, flat_master: bool = False) -> tuple[list[Any], list[Any]]:
    """(the trained parameters of `model`, their float32 masters). Raises RuntimeError for a flat master of several dtypes."""
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not flat_master:
        return params, [nn.Parameter(parameter.detach().clone().float()) for parameter in params]
    dtypes = {parameter.dtype for parameter in params}
    if len(dtypes) > 1:
        raise RuntimeError(f"prep_param_lists: flat_master with parameters of {sorted(map(str, dtypes))}; accepted: one dtype")
    master = nn.Parameter(_flatten_dense_tensors([parameter.detach() for parameter in params]).float())
    master.grad = torch.zeros_like(master)
    return params, [master]


def model_grads_to_master_grads(model_params: Sequence[Any], master_params: Sequence[Any], flat_master: bool = False) -> None:
    """The gradients of the model's parameters become those of the masters."""
    if flat_master:
        master_params[0].grad.copy_(_flatten_dense_tensors([parameter.grad.detach() for parameter in model_params]))
        return
    for parameter, master in zip(model_params, master_params, strict=True):
        master.grad = None if parameter.grad is None else parameter.grad.detach().float()


def master_params_to_model_params(model_params: Sequence[Any], master_params: Sequence[Any], flat_master: bool = False) -> None:
    """The model's parameters get what the masters are."""
    masters = _unflatten_dense_tensors(master_params[0].detach(), model_params) if flat_master else master_params
    with torch.no_grad():
        for parameter, master in zip(model_params, masters, strict=True):
            parameter.copy_(master)


def to_python_float(value: Any) -> float:
    """The number in a tensor of one element, or the first of a list."""
    return float(value.item() if hasattr(value, "item") else value[0])
