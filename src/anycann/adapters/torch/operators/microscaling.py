"""Floats of eight bits in groups that share a power of two (OCP Microscaling Formats)."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.precision import dtype_of, wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_NAME = "npu_dynamic_mx_quant"
_LARGEST_EXPONENT = {torch.float8_e4m3fn: 8, torch.float8_e5m2: 15}
_FLOAT4 = (296, 297)
_EXPONENT_BIAS = 127
_NOT_A_NUMBER = 255


@composed(
    'npu_dynamic_mx_quant(Tensor input, *, int axis=-1, str round_mode="rint", int dst_type=296, int block_size=32, int? scale_alg=0, '
    "float dst_type_max=0.0, float max_low_bound=0.0) -> (Tensor, Tensor)",
    missing="float4 results (the default dst_type), scale_alg other than 0, dst_type_max, max_low_bound",
    differentiable=False,
)
def dynamic_mx_quant(
    input: torch.Tensor,
    *,
    axis: int = -1,
    round_mode: str = "rint",
    dst_type: int = 296,
    block_size: int = 32,
    scale_alg: int | None = 0,
    dst_type_max: float = 0.0,
    max_low_bound: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(input divided by the scale of its group, as float8_e4m3fn or float8_e5m2; the scales as float8_e8m0fnu).

    A group is block_size neighbours along `axis`; its scale is 2 ** (floor(log2(largest magnitude)) - the largest exponent of the type).
    Scales have pairs of groups in a last dimension of 2, an odd last one beside zero: axis becomes ceil(groups / 2).
    """
    if dst_type in _FLOAT4:
        refuse(_NAME, f"dst_type={dst_type}", "float4 results are not computed; torch.float8_e4m3fn and torch.float8_e5m2 are")
    dtype = dtype_of(dst_type, _NAME, "dst_type", torch.float8_e4m3fn)
    if dtype not in _LARGEST_EXPONENT:
        refuse(_NAME, f"dst_type={dtype}", "torch.float8_e4m3fn and torch.float8_e5m2 are documented")
    for name, value, accepted in (
        ("dst_type_max", dst_type_max, 0.0),
        ("max_low_bound", max_low_bound, 0.0),
        ("round_mode", round_mode, "rint"),
    ):
        if value != accepted:
            refuse(_NAME, f"{name}={value!r}", f"for float8 {accepted!r} is computed")
    if scale_alg not in (None, 0):
        refuse(_NAME, f"scale_alg={scale_alg}", "0, that of the OCP formats, is computed")
    require(block_size % 32 == 0 and 0 < block_size <= 1024, _NAME, f"block_size={block_size}", "a multiple of 32, at most 1024")
    require(input.dtype.is_floating_point and input.dim() >= 1, _NAME, sizes(input), "a tensor of floats")
    x = wide(input.detach()).movedim(axis, -1)
    size = x.shape[-1]
    pairs = -(-size // (2 * block_size))
    groups = functional.pad(x, (0, pairs * 2 * block_size - size)).unflatten(-1, (pairs * 2, block_size))
    largest = groups.abs().amax(-1)
    # frexp: a fraction from 0.5 to 1, so one more than floor(log2)
    exponent = torch.frexp(largest).exponent - 1 - _LARGEST_EXPONENT[dtype]
    code = torch.where(largest == 0, 0, (exponent + _EXPONENT_BIAS).clamp(0, _NOT_A_NUMBER - 1))
    code = torch.where(torch.isfinite(largest), code, _NOT_A_NUMBER)
    scale = torch.ldexp(torch.ones_like(largest), code - _EXPONENT_BIAS)
    scale = torch.where(code == _NOT_A_NUMBER, torch.nan, scale)
    end = torch.finfo(dtype).max
    y = (groups / scale[..., None]).clamp(-end, end).to(dtype)
    y = y.flatten(-2)[..., :size].movedim(-1, axis).contiguous()
    scales = code.to(torch.uint8).unflatten(-1, (pairs, 2)).movedim(-2, axis if axis >= 0 else axis - 1).contiguous()
    return y, scales.view(torch.float8_e8m0fnu)
