"""Dropout by masks: of bits (eight elements a byte, the first in the lowest bit) or of bytes."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, opaque, require

_BITS_OF_A_LINE = 128  # masks are whole lines of 128 bits
_Pair = tuple[torch.Tensor, torch.Tensor]


def mask_bytes(elements: int) -> int:
    """Length in bytes of the bit mask of that many elements."""
    return -(-elements // _BITS_OF_A_LINE) * _BITS_OF_A_LINE // 8


def packed(kept: torch.Tensor) -> torch.Tensor:
    """A bit mask of booleans."""
    bits = kept.reshape(-1).to(torch.uint8)
    bits = functional.pad(bits, [0, mask_bytes(bits.shape[0]) * 8 - bits.shape[0]]).reshape(-1, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=kept.device)
    return (bits * weights).sum(-1, dtype=torch.uint8)


def unpacked(mask: torch.Tensor, shape: torch.Size | list[int]) -> torch.Tensor:
    """The booleans of a bit mask."""
    places = torch.arange(8, dtype=torch.uint8, device=mask.device)
    bits = mask.reshape(-1, 1).bitwise_right_shift(places).bitwise_and(1)
    return bits.reshape(-1)[: math.prod(shape)].reshape(shape).bool()


def kept_by_seed(shape: torch.Size | list[int], p: float, seed: int, offset: int) -> torch.Tensor:
    """Which elements dropout with probability p keeps: the same for the same seed and offset."""
    generator = torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + offset) % 2**63)
    return torch.rand(shape, generator=generator) >= p


def _mask_of_size(size: list[int], p: float, **factory: object) -> torch.Tensor:
    return torch.empty(mask_bytes(math.prod(size)), dtype=torch.uint8)


@composed(
    "npu_dropout_gen_mask(int[] size, float p, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None)"
    " -> Tensor",
    differentiable=False,
)
def dropout_gen_mask(
    size: list[int],
    p: float,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """The bit mask of a tensor of `size` in which each element is kept with probability 1 - p."""
    _probability("npu_dropout_gen_mask", p)
    return packed(torch.rand(size, device=device) >= p)


@opaque(
    "_npu_dropout_gen_mask.Tensor(Tensor self, int[] size, float p, int seed, int offset, *, bool? parallel=True, bool? sync=None)"
    " -> Tensor",
    shape=lambda self, size, p, seed, offset, parallel=True, sync=None: self.new_empty(mask_bytes(math.prod(size)), dtype=torch.uint8),
)
def dropout_gen_mask_seeded(
    self: torch.Tensor, size: list[int], p: float, seed: int, offset: int, *, parallel: bool | None = True, sync: bool | None = None
) -> torch.Tensor:
    """The bit mask that seed and offset fix."""
    _probability("_npu_dropout_gen_mask", p)
    return packed(kept_by_seed(size, p, seed, offset))


@composed("npu_dropout_do_mask(Tensor self, Tensor mask, float p) -> (Tensor, Tensor)")
def dropout_do_mask(self: torch.Tensor, mask: torch.Tensor, p: float) -> _Pair:
    """(self where the bit mask keeps it over 1 - p, else zero; the mask)."""
    _probability("npu_dropout_do_mask", p)
    return _masked(self, unpacked(mask, self.shape), p), mask.clone()


@composed("npu_dropout_backward(Tensor grad_output, Tensor mask, float p) -> Tensor")
def dropout_backward(grad_output: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """Gradient of dropout by a bit mask."""
    return _masked(grad_output, unpacked(mask, grad_output.shape), p)


@composed("_npu_dropout(Tensor self, float p) -> (Tensor, Tensor)")
def dropout(self: torch.Tensor, p: float) -> _Pair:
    """(dropout, its bit mask)."""
    _probability("_npu_dropout", p)
    kept = torch.rand_like(wide(self)) >= p
    return _masked(self, kept, p), packed(kept)


@composed("_dropout_with_byte_mask(Tensor self, float p) -> (Tensor, Tensor)")
def dropout_with_byte_mask(self: torch.Tensor, p: float) -> _Pair:
    """(dropout, its mask of one byte an element)."""
    _probability("_dropout_with_byte_mask", p)
    kept = torch.rand_like(wide(self)) >= p
    return _masked(self, kept, p), kept.to(torch.uint8).reshape(-1)


@composed("dropout_with_byte_mask(Tensor self, float p, bool train) -> Tensor")
def dropout_with_byte_mask_in_training(self: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Dropout in training, the input itself otherwise."""
    return dropout_with_byte_mask(self, p)[0] if train and p > 0 else self.clone()


@composed("npu_dropout_with_add_softmax(Tensor self, Tensor x1, Scalar alpha, float prob, int dim) -> (Tensor, Tensor, Tensor)")
def dropout_with_add_softmax(
    self: torch.Tensor, x1: torch.Tensor, alpha: float, prob: float, dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(bit mask, softmax(x1 + alpha self), its dropout)."""
    _probability("npu_dropout_with_add_softmax", prob)
    probabilities = torch.softmax(wide(x1) + alpha * wide(self), dim)
    kept = torch.rand_like(probabilities) >= prob
    return packed(kept), probabilities.to(self.dtype), _masked(probabilities, kept, prob).to(self.dtype)


@composed(
    "npu_dropout_with_add_softmax_backward(Tensor grad, Tensor mask, Tensor softmax_out, Scalar alpha, float prob, int dim)"
    " -> (Tensor, Tensor)"
)
def dropout_with_add_softmax_backward(
    grad: torch.Tensor, mask: torch.Tensor, softmax_out: torch.Tensor, alpha: float, prob: float, dim: int
) -> _Pair:
    """Gradients by self and by x1 of `npu_dropout_with_add_softmax`."""
    above = _masked(wide(grad), unpacked(mask, grad.shape), prob)
    y = wide(softmax_out)
    by_sum = y * (above - (above * y).sum(dim, keepdim=True))
    return (by_sum * alpha).to(grad.dtype), by_sum.to(grad.dtype)


def _masked(x: torch.Tensor, kept: torch.Tensor, p: float) -> torch.Tensor:
    return x * (kept.to(x.dtype) * (1 / (1 - p))) if p < 1 else torch.zeros_like(x)


def _probability(operator: str, p: float) -> None:
    require(0 <= p <= 1, operator, f"probability {p}", "0 to 1")
