"""Products of matrices of eight-bit floats, with a scale for each row and column or with a power of two for each 32 of the depth."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.microscaling import GROUP, mx_values
from anycann.adapters.torch.operators.packing import scale_of
from anycann.adapters.torch.operators.registry import refuse, require, sizes

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def float8_product(
    operator: str,
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor | None,
    by_row: torch.Tensor | None,
    groups: list[int] | None = None,
) -> torch.Tensor:
    """float32 (..., m, n) of x1 (..., m, k) and x2 (..., k, n) of float8.

    scale and by_row of float8_e8m0fnu (or its bytes), (..., k / 64, n, 2) and (..., m, k / 64, 2), as `npu_dynamic_mx_quant` makes them, or
    floats (the first also as `npu_trans_quant_param` writes it): one or n, and one or m, by which the product is multiplied.
    """
    require(x2.dtype in FLOAT8 and x1.shape[-1] == x2.shape[-2], operator, f"x1 and x2 of {sizes(x1, x2)}", "float8 of equal depths")
    by_powers = is_of_powers(scale)
    if groups and (any(size > 1 for size in groups[:-1]) or groups[-1] not in ((0, 1, GROUP) if by_powers else (0, 1))):
        refuse(operator, f"group_sizes={groups}", f"float8 with a power of two for each {GROUP} of the depth is computed")
    if by_powers:
        assert scale is not None
        return _microscaled(operator, x1, x2, scale, by_row)
    y = x1.float() @ x2.float()
    y = y if scale is None else y * scale_of(scale)
    return y if by_row is None else y * by_row.reshape(-1, 1).float()


def is_of_powers(scale: torch.Tensor | None) -> bool:
    """Whether a scale holds powers of two, as `npu_dynamic_mx_quant` writes them, or their bytes."""
    return scale is not None and scale.dtype in (torch.float8_e8m0fnu, torch.uint8)


def _microscaled(operator: str, x1: torch.Tensor, x2: torch.Tensor, scale: torch.Tensor, by_row: torch.Tensor | None) -> torch.Tensor:
    pairs = -(-x1.shape[-1] // (2 * GROUP))
    wanted = (*x1.shape[:-1], pairs, 2), (*x2.shape[:-2], pairs, x2.shape[-1], 2)
    fits = by_row is not None and (by_row.shape, scale.shape) == wanted
    require(
        fits,
        operator,
        f"scales by row and column of {sizes(by_row, scale)} for x1 and x2 of {sizes(x1, x2)}",
        f"{wanted[0]} and {wanted[1]}",
    )
    assert by_row is not None
    return mx_values(x1, by_row, -1) @ mx_values(x2, scale, -2)
