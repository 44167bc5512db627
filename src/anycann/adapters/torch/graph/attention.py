"""Attention on the npu stays one operator in the graphs of AOTAutograd, as it does on the CPU.

torch takes it apart for devices that it does not know. Here it is put into the graph of Dynamo, before autograd, as an operator of ours
with the meaning of aten::_scaled_dot_product_flash_attention_for_cpu, whose kernels compute it where the engine does not.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten


@torch.library.custom_op("anycann::attention", mutates_args=())
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, heads, L, E] x [N, heads, S, E] x [N, heads, S, V] -> [N, heads, L, V], and the logarithms of the sums of each row."""
    from anycann.adapters.torch.device.aliasing import adopt, host_alias

    device = query.device
    on_host = [None if t is None else host_alias(t) if t.device.type != "cpu" else t for t in (query, key, value, attn_mask)]
    results = _aten._scaled_dot_product_flash_attention_for_cpu(*on_host[:3], 0.0, is_causal, attn_mask=on_host[3], scale=scale)
    return tuple(result if device.type == "cpu" else adopt(result, device.index) for result in results)


@attention.register_fake
def _(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    batch, heads, rows, _ = query.shape
    out = query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)
    wide = torch.float32 if query.dtype in (torch.float16, torch.bfloat16) else query.dtype
    return out, query.new_empty(batch, rows, heads, dtype=wide).transpose(1, 2)


@torch.library.custom_op("anycann::attention_backward", mutates_args=())
def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    attn_mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of query, key and value."""
    from anycann.adapters.torch.device.aliasing import adopt, host_alias

    device = query.device
    tensors = (grad_out, query, key, value, out, logsumexp, attn_mask)
    on_host = [None if t is None else host_alias(t) if t.device.type != "cpu" else t for t in tensors]
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    results = backward(*on_host[:6], 0.0, is_causal, attn_mask=on_host[6], scale=scale)
    return tuple(result if device.type == "cpu" else adopt(result, device.index) for result in results)


@attention_backward.register_fake
def _(grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    return tuple(t.new_empty(t.shape[0], t.shape[2], t.shape[1], t.shape[3]).transpose(1, 2) for t in (query, key, value))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, mask, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, mask)


def _back(context: Any, grad_out: torch.Tensor, _: Any) -> Any:
    query, key, value, out, logsumexp, mask = context.saved_tensors
    facts = context.is_causal, context.scale
    grads = torch.ops.anycann.attention_backward(grad_out, query, key, value, out, logsumexp, mask, *facts)
    return *grads, None, None, None


torch.library.register_autograd("anycann::attention", _back, setup_context=_keep)


# ---- in the graph of Dynamo
def keep_attention_whole(module: torch.fx.GraphModule) -> None:
    """Replace the calls of scaled_dot_product_attention whose operands are on the npu, in place."""
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
    found: torch.Tensor = torch.ops.anycann.attention(query, key, value, attn_mask, is_causal, factor)[0]
    return found


def _may_be_whole(node: torch.fx.Node) -> bool:
    """Whether it is attention of four dimensions on the npu, without dropout, and its mask needs no gradient."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    fakes = [_fake(given.get(name)) for name in names[:3]]
    mask = _fake(given.get("attn_mask"))
    if any(fake is None or fake.device.type != "npu" or fake.dim() != 4 for fake in fakes) or given.get("dropout_p"):
        return False
    same_width = fakes[0].shape[-1] == fakes[2].shape[-1]
    return same_width and (mask is None or (mask.dim() in (2, 4) and not mask.requires_grad))


def _fake(argument: Any) -> Any:
    return argument.meta.get("example_value") if isinstance(argument, torch.fx.Node) else None
