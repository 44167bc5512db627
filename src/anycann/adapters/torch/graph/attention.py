"""Attention stays one operator in the graphs of AOTAutograd, forward and backward, whatever the device.

torch takes it apart for devices that it does not know, and on the CPU its operator keeps the logarithms of its sums for the gradient. Here
it is put into the graph of Dynamo, before autograd, as an operator of ours whose gradient needs nothing but its operands. The engine
computes both; where it does not, torch's kernels for the CPU do.
"""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.device.aliasing import adopt, host_alias

_aten = torch.ops.aten


@torch.library.custom_op("anycann::attention", mutates_args=())
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool, scale: float
) -> torch.Tensor:
    """[N, heads, L, E] x [N, heads, S, E] x [N, heads, S, E] -> [N, heads, L, E]; the mask is added to the scores."""
    operands = _on_host(query, key, value, attn_mask)
    return _on_device(_forward(operands, is_causal, scale)[0], query.device)


@attention.register_fake
def _(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    batch, heads, rows, _ = query.shape
    return query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)


@torch.library.custom_op("anycann::attention_backward", mutates_args=())
def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of query, key and value."""
    given, *operands = _on_host(grad_out, query, key, value, attn_mask)
    results = _forward(operands, is_causal, scale)
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    gradients = backward(given, *operands[:3], *results, 0.0, is_causal, attn_mask=operands[3], scale=scale)
    first, second, third = (_on_device(gradient, query.device) for gradient in gradients)
    return first, second, third


@attention_backward.register_fake
def _(grad_out: Any, query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    return tuple(t.new_empty(t.shape[0], t.shape[2], t.shape[1], t.shape[3]).transpose(1, 2) for t in (query, key, value))


def _forward(operands: Any, is_causal: bool, scale: float) -> Any:
    """The result, and the logarithms of the sums, by torch's kernel for the CPU."""
    return _aten._scaled_dot_product_flash_attention_for_cpu(*operands[:3], 0.0, is_causal, attn_mask=operands[3], scale=scale)


def _on_host(*tensors: torch.Tensor | None) -> list[Any]:
    return [None if tensor is None else tensor if tensor.device.type == "cpu" else host_alias(tensor) for tensor in tensors]


def _on_device(result: torch.Tensor, device: torch.device) -> torch.Tensor:
    return result if device.type == "cpu" else adopt(result, device.index)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, mask, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, mask)


def _back(ctx: Any, grad_out: torch.Tensor) -> Any:
    query, key, value, mask = ctx.saved_tensors
    gradients = torch.ops.anycann.attention_backward(grad_out, query, key, value, mask, ctx.is_causal, ctx.scale)
    return *gradients, None, None, None


torch.library.register_autograd("anycann::attention", _back, setup_context=_keep)


# ---- in the graph of Dynamo
def keep_attention_whole(module: torch.fx.GraphModule) -> None:
    """Replace the calls of scaled_dot_product_attention that may be, in place."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is torch._C._nn.scaled_dot_product_attention and _may_be_whole(node):
            node.target = whole_attention
    module.recompile()


def whole_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention without dropout, of four dimensions."""
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), float("-inf"))
    factor = query.shape[-1] ** -0.5 if scale is None else float(scale)
    found: torch.Tensor = torch.ops.anycann.attention(query, key, value, attn_mask, is_causal, factor)
    return found


def _may_be_whole(node: torch.fx.Node) -> bool:
    """Whether it is attention of four dimensions and one width, without dropout, and its mask needs no gradient."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    fakes = [_fake(given.get(name)) for name in names[:3]]
    mask = _fake(given.get("attn_mask"))
    if any(fake is None or fake.dim() != 4 or not fake.dtype.is_floating_point for fake in fakes) or given.get("dropout_p"):
        return False
    same_width = fakes[0].shape[-1] == fakes[2].shape[-1]
    return same_width and (mask is None or (mask.dim() in (2, 4) and not mask.requires_grad))


def _fake(argument: Any) -> Any:
    return argument.meta.get("example_value") if isinstance(argument, torch.fx.Node) else None
