"""Layers of `torch_npu.contrib.module` with integer weights, and the attention of fairseq."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from anycann.adapters.torch.contrib.layers import NpuCachedDropout

_npu = torch.ops.npu


def _fixed(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> Parameter:
    return Parameter(torch.zeros(shape, dtype=dtype, device=device), requires_grad=False)


class LinearQuant(nn.Module):
    """A product of int8 (or four-bit in int32) inputs (..., in) and a weight (out, in) with scales. Raises ValueError for other dtypes."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        offset: bool = False,
        pertoken_scale: bool = False,
        device: Any = None,
        dtype: Any = None,
        output_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.output_dtype = in_features, out_features, output_dtype
        self.weight, self.scale = _fixed(out_features, in_features, device=device), _fixed(out_features, device=device)
        self.offset = _fixed(out_features, device=device) if offset else None
        self.pertoken_scale = _fixed(out_features, device=device) if pertoken_scale else None
        self.bias = _fixed(out_features, dtype=torch.int32, device=device) if bias else None

    def forward(self, linear_quant_input: torch.Tensor) -> torch.Tensor:
        """(..., out) of output_dtype, int8 unless it is given."""
        dtypes = linear_quant_input.dtype, self.weight.dtype
        if dtypes not in ((torch.int8, torch.int8), (torch.int32, torch.int32)):
            raise ValueError(f"{type(self).__name__}: input of {dtypes[0]}, weight of {dtypes[1]}; accepted: both int8, or both int32")
        scale, plain = self.scale, self.output_dtype not in (torch.bfloat16, torch.int32)
        if self.pertoken_scale is None and scale.dtype == torch.float32 and plain:
            scale = _npu.npu_trans_quant_param(scale, self.offset)
        return _npu.npu_quant_matmul(
            linear_quant_input,
            self.weight.transpose(-1, -2),
            scale,
            offset=self.offset,
            pertoken_scale=self.pertoken_scale,
            bias=self.bias,
            output_dtype=self.output_dtype,
        )


class LinearA8W8Quant(LinearQuant):
    """The older name of LinearQuant."""


class LinearWeightQuant(nn.Module):
    """A product of float inputs and an integer weight (out, in) with scales."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        antiquant_offset: bool = False,
        quant_scale: bool = False,
        quant_offset: bool = False,
        antiquant_group_size: int = 0,
        inner_precise: int = 0,
        weight_dtype: int | None = None,
    ) -> None:
        super().__init__()
        self.weight, self.antiquant_scale = _fixed(out_features, in_features, device=device), _fixed(out_features, device=device)
        self.antiquant_offset = _fixed(out_features, device=device) if antiquant_offset else None
        self.quant_scale = _fixed(out_features, device=device) if quant_scale else None
        self.quant_offset = _fixed(out_features, device=device) if quant_offset else None
        self.bias = _fixed(out_features, device=device) if bias else None
        self.antiquant_group_size, self.inner_precise, self.weight_dtype = antiquant_group_size, inner_precise, weight_dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(M, out) of (M, in); scales of groups are (out, groups)."""
        scale, offset = (
            s.transpose(-1, -2) if s is not None and s.dim() == 2 else s for s in (self.antiquant_scale, self.antiquant_offset)
        )
        numbers = (self.antiquant_group_size, self.inner_precise, self.weight_dtype)
        return _npu.npu_weight_quant_batchmatmul(
            x, self.weight.transpose(-1, -2), scale, offset, self.quant_scale, self.quant_offset, self.bias, *numbers
        )


class QuantConv2d(nn.Module):
    """A convolution of int8 with scales of each output channel. Raises ValueError for an offset."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        output_dtype: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        offset: bool = False,
        offset_x: int = 0,
        round_mode: str = "rint",
        input_dtype: int | None = None,
        weight_dtype: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if offset:
            raise ValueError("QuantConv2d: offset=True; accepted: False")
        self.kernel_size, self.stride, self.padding, self.dilation = (_pair(x) for x in (kernel_size, stride, padding, dilation))
        self.groups, self.offset_x, self.round_mode, self.output_dtype = groups, offset_x, round_mode, output_dtype
        self.input_dtype, self.weight_dtype, self.offset = input_dtype, weight_dtype, None
        self.weight = _fixed(out_channels, in_channels // groups, *self.kernel_size, device=device)
        self.scale = _fixed(out_channels, dtype=torch.int64, device=device)
        self.bias = _fixed(out_channels, device=device) if bias else None

    def forward(self, quant_conv2d_input: torch.Tensor) -> torch.Tensor:
        """(B, out_channels, H, W) of output_dtype."""
        scale = _npu.npu_trans_quant_param(self.scale) if self.scale.dtype == torch.float32 else self.scale
        shape = (self.stride, self.padding, self.dilation, self.groups, self.offset_x, self.round_mode, self.output_dtype)
        rest = (self.bias, None, self.input_dtype, self.weight_dtype)
        return _npu.npu_quant_conv2d(quant_conv2d_input, self.weight, scale, *shape, *rest)


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class MultiheadAttention(nn.Module):
    """Attention of fairseq on rows: query (B tgt_len, E), key and value (B src_len, E)."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kdim: int | None = None,
        vdim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        self_attention: bool = False,
        encoder_decoder_attention: bool = False,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: embed_dim {embed_dim} of {num_heads} heads; accepted: a multiple")
        if add_bias_kv or add_zero_attn or q_noise:
            raise NotImplementedError(
                "MultiheadAttention: add_bias_kv, add_zero_attn and q_noise are not supported: they take no effect on Ascend"
            )
        self.embed_dim, self.num_heads, self.head_dim, self.dropout_prob = embed_dim, num_heads, embed_dim // num_heads, dropout
        self.scaling = self.head_dim**-0.5
        self.dropout_module = NpuCachedDropout(dropout, module_name=type(self).__name__)
        widths = (embed_dim, embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim, embed_dim)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, embed_dim, bias=bias) for width in widths)
        gain = 2**-0.5 if widths[1] == widths[2] == embed_dim else 1.0
        for layer in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(layer.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bsz: int,
        tgt_len: int,
        s_len: int,
        key_padding_mask: torch.Tensor | None = None,
        incremental_state: Any = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: torch.Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[torch.Tensor, None]:
        """(result (B tgt_len, E), None); key_padding_mask (B, 1 or heads, tgt, src) is added to the scores."""
        if incremental_state is not None or attn_mask is not None:
            raise NotImplementedError(
                "MultiheadAttention: incremental_state and attn_mask are not supported: they take no effect on Ascend"
            )
        layers = (self.q_proj, self.k_proj, self.v_proj)
        heads = [
            p(x).reshape(bsz, -1, self.num_heads, self.head_dim).transpose(1, 2) for p, x in zip(layers, (query, key, value), strict=True)
        ]
        scores = (heads[0] * self.scaling).float() @ heads[1].float().transpose(-1, -2)
        scores = scores if key_padding_mask is None else scores + key_padding_mask.float()
        weights = self.dropout_module(torch.softmax(scores, -1).to(query.dtype))
        context = (weights @ heads[2]).transpose(1, 2).reshape(query.shape[0], self.embed_dim)
        return self.out_proj(context), None
