"""Quantisation by blocks of rows and columns, each with a scale of its own."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.precision import dtype_of, wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


@composed(
    "npu_dynamic_block_quant(Tensor x, *, float min_scale=0.0, str round_mode='rint', int dst_type=1, int row_block_size=1, "
    "int col_block_size=128, float dst_type_max=0.0) -> (Tensor y, Tensor scale)",
    missing="hifloat8, round_mode other than 'rint', dst_type_max",
    differentiable=False,
)
def dynamic_block_quant(
    x: torch.Tensor,
    *,
    min_scale: float = 0.0,
    round_mode: str = "rint",
    dst_type: int = 1,
    row_block_size: int = 1,
    col_block_size: int = 128,
    dst_type_max: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(x over the scale of its block as int8, float8_e4m3fn or float8_e5m2; the scales in float32, (..., blocks of rows, of columns)) of x
    (rows, columns) or (batches, rows, columns). A scale is the largest magnitude over that of the type, at most 1 / min_scale."""
    operator = "npu_dynamic_block_quant"
    dtype = dtype_of(dst_type, operator, "dst_type", torch.int8)
    if dtype not in _LARGEST or round_mode != "rint" or dst_type_max != 0.0:
        told = f"dst_type={dst_type}, round_mode={round_mode!r}, dst_type_max={dst_type_max}"
        refuse(operator, told, "torch.int8, torch.float8_e4m3fn and torch.float8_e5m2 with 'rint' and 0.0 are computed")
    require(x.dim() in (2, 3) and x.is_floating_point(), operator, sizes(x), "floats (rows, columns) or (batches, rows, columns)")
    require(min(row_block_size, col_block_size) > 0, operator, f"blocks of {row_block_size} x {col_block_size}", "sizes above 0")
    require(min_scale >= 0, operator, f"min_scale={min_scale}", "0 or more")
    rows, columns = x.shape[-2:]
    padded = functional.pad(wide(x.detach()), (0, -columns % col_block_size, 0, -rows % row_block_size))
    blocks = padded.unflatten(-1, (-1, col_block_size)).unflatten(-3, (-1, row_block_size))
    scale = blocks.abs().amax((-3, -1)) / _LARGEST[dtype]
    scale = torch.where(scale.isfinite(), scale.clamp(max=1 / min_scale), scale) if min_scale else scale
    y = torch.nan_to_num(blocks / scale[..., :, None, :, None])  # of zeros only: 0 / 0
    y = packing.rounded(y, dtype) if dtype == torch.int8 else y.clamp(-_LARGEST[dtype], _LARGEST[dtype]).to(dtype)
    return y.flatten(-2).flatten(-3, -2)[..., :rows, :columns].contiguous(), scale.float()
