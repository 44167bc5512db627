"""Which keys a query attends: sparse modes 0 to 8, masks (True or 1: not attended), and position biases that are given in parts."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import refuse, require, sizes
from anycann.support.records import dataclass

_ALIBI_ROWS = 1024  # a compressed bias has the last rows of the whole


@dataclass(frozen=True)
class Sparsity:
    """mode: 0 the mask, and the band around the diagonal from the upper left corner; 1 the mask; 2 causal from the upper left corner; 3
    causal from the lower right one; 4 a band around that; 5 the mask; 6 as 3, and the first `prefix` keys of each entry; 7 as 3, the last
    entry as 4; 8 as 2, the first entry as 4. before, after: the band's width."""

    operator: str
    mode: int
    before: int
    after: int
    prefix: list[int] | None = None

    def __post_init__(self) -> None:
        require(0 <= self.mode <= 8, self.operator, f"sparse_mode {self.mode}", "0 to 8")
        require(self.mode != 6 or self.prefix is not None, self.operator, "sparse_mode 6 without prefix", "a prefix for each entry")


def masked(sparsity: Sparsity, mask: torch.Tensor | None, rows: int, columns: int, entry: int = 0, entries: int = 1) -> torch.Tensor | None:
    """True where keys are not attended, broadcastable to (B, N, rows, columns); None if all are.

    `entry` of `entries` is the place of a sequence among those of different lengths. Without a mask everything is attended, as documented.
    """
    if mask is None:
        return None
    require(not mask.is_floating_point(), sparsity.operator, f"a mask of {sizes(mask)}", "bool or uint8, 1 for what is not attended")
    mode = _mode_of_entry(sparsity.mode, entry, entries)
    if mode in (0, 1, 5):
        given = _cut(sparsity.operator, mask, rows, columns)
        band = _outside(rows, columns, 0, sparsity.before, sparsity.after, mask.device) if mode == 0 else None
        return given if band is None else given | band
    corner = 0 if mode == 2 else columns - rows
    if mode == 4:
        return _outside(rows, columns, corner, sparsity.before, sparsity.after, mask.device)
    causal = _outside(rows, columns, corner, rows + columns, 0, mask.device)
    if mode != 6 or causal is None:
        return causal
    first = torch.tensor(sparsity.prefix if entries == 1 else [(sparsity.prefix or [])[entry]], device=mask.device)
    return causal & (torch.arange(columns, device=mask.device) >= first[:, None])[:, None, None, :]


def _mode_of_entry(mode: int, entry: int, entries: int) -> int:
    if mode == 7:
        return 4 if entry == entries - 1 else 3
    if mode == 8:
        return 4 if entry == 0 else 2
    return mode


def _outside(rows: int, columns: int, corner: int, before: int, after: int, device: torch.device) -> torch.Tensor | None:
    """(rows, columns), True outside the band row + corner - before <= column <= row + corner + after; None if all is inside."""
    if after >= columns - corner and before >= rows + corner:
        return None
    distance = torch.arange(columns, device=device) - torch.arange(rows, device=device)[:, None] - corner
    return (distance > after) | (distance < -before)


def _cut(operator: str, mask: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    require(2 <= mask.dim() <= 4, operator, f"a mask of {sizes(mask)}", "(S, S), (1, S, S), (B, 1, S, S) or (B, N, S, S)")
    whole = mask.unsqueeze(1) if mask.dim() == 3 else mask
    fits = whole.shape[-2] >= rows and whole.shape[-1] >= columns
    require(fits, operator, f"a mask of {sizes(mask)} for {rows} queries and {columns} keys", "at least as many")
    return whole[..., :rows, :columns].bool()


def position_bias(operator: str, pse: torch.Tensor | None, rows: int, columns: int, mode: int) -> torch.Tensor | None:
    """The bias for (B, N, rows, columns): as it is given, or from the last 1024 rows of a bias of the distance alone (ALiBi)."""
    if pse is None:
        return None
    require(pse.dim() == 4, operator, f"pse of {sizes(pse)}", "(B, N, S, S), (B, N, 1, S), (1, N, S, S), or 1024 rows of them")
    if pse.shape[2] in (1, rows) and pse.shape[3] >= columns:
        return pse[..., :columns]
    if pse.shape[2] != _ALIBI_ROWS or mode not in (0, 2, 3) or rows != columns:
        refuse(operator, f"pse of {sizes(pse)} for {rows} queries and {columns} keys in sparse mode {mode}", "see the accepted shapes")
    return pse[:, :, -1][..., _alibi_places(rows, columns, pse.shape[3], pse.device)]


def _alibi_places(rows: int, columns: int, kept: int, device: torch.device) -> torch.Tensor:
    """Where the last row of a bias holds what belongs to (row, column): as far from its end as the column is before the row."""
    distance = torch.arange(rows, device=device)[:, None] - torch.arange(columns, device=device)
    return (kept - 1 - distance).clamp(0, kept - 1)  # above the diagonal nothing is attended


def bias_gradient(pse: torch.Tensor, by_bias: torch.Tensor) -> torch.Tensor:
    """The gradient by `pse` of the gradient by the bias that `position_bias` made of it."""
    if pse.shape[2] in (1, by_bias.shape[2]):
        result = torch.zeros_like(pse, dtype=by_bias.dtype)
        result[..., : by_bias.shape[3]] = by_bias
        return result
    rows, columns = by_bias.shape[2:]
    places = _alibi_places(rows, columns, pse.shape[3], pse.device)
    result = torch.zeros_like(pse, dtype=by_bias.dtype)
    flat = by_bias.flatten(2)
    result[:, :, -1] = torch.zeros_like(result[:, :, -1]).scatter_add_(-1, places.flatten().expand(flat.shape), flat)
    return result
