"""Keys and values that are kept as integers, and the scales that make them floats."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.attention.pages import read_pages
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import refuse, require, sizes
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Quantisation:
    """How keys or values become floats: (x + offset) * scale, with scales by channel (0), by token (1: (B, S)), head (2), token and head
    (3: (B, N, S)), or token (4) and head (5) in the pages of the keys: (pages, [N,] tokens of a page)."""

    mode: int
    scale: torch.Tensor
    offset: torch.Tensor | None

    def parts(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scales and offsets in float32."""
        return self.scale.float(), None if self.offset is None else self.offset.float()


def floats(
    operator: str, x: torch.Tensor, quantisation: Quantisation | None, entry: int, table: torch.Tensor | None, block_size: int
) -> torch.Tensor:
    """Keys or values (1, N, S, D) of sequence `entry`, as they lie in the pages of `table` or apart, as floats."""
    if x.dtype == torch.int32:
        x = packing.unpack_int4(x)
    if x.dtype != torch.int8:
        return wide(x)
    require(quantisation is not None, operator, "keys or values of int8 without scales", "antiquant scales")
    assert quantisation is not None
    scale, offset = (
        None if part is None else _beside(operator, part, quantisation.mode, entry, x, table, block_size) for part in quantisation.parts()
    )
    return (x.float() if offset is None else x.float() + offset) * scale


def _beside(
    operator: str, scale: torch.Tensor, mode: int, entry: int, x: torch.Tensor, table: torch.Tensor | None, block_size: int
) -> torch.Tensor:
    """A scale in a shape that broadcasts to (1, N, S, D)."""
    heads, length, width = x.shape[1:]
    if mode == 0 and scale.numel() in (1, heads * width):
        return scale.reshape(()) if scale.numel() == 1 else scale.reshape(1, heads, 1, width)
    if mode == 1 and scale.dim() >= 2 and scale.shape[-1] >= length:
        rows = scale.reshape(-1, scale.shape[-1])
        return rows[entry if rows.shape[0] > 1 else 0][None, None, :length, None]
    if mode == 2 and scale.numel() == heads:
        return scale.reshape(1, heads, 1, 1)
    if mode == 3 and scale.dim() >= 3 and scale.shape[-2] == heads and scale.shape[-1] >= length:
        return scale.reshape(-1, heads, scale.shape[-1])[entry, :, :length][None, ..., None]
    if mode in (4, 5) and table is not None and scale.dim() == mode - 2:
        pages = scale if mode == 5 else scale[:, None]
        return read_pages(pages[..., None], table[entry], length, pages.shape[1], block_size)[None]
    accepted = "by channel (0), token (1), head (2), token and head (3), and those in the pages of the keys (4, 5) are computed"
    return refuse(operator, f"scales of {sizes(scale)} in mode {mode}", accepted)
