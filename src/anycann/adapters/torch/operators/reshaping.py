"""Slices, transposes, pads and what else moves values without changing them."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes, with_out

_CHANNELS_OF_A_BLOCK = 16  # C0 of the layout NC1HWC0
_Pair = tuple[torch.Tensor, torch.Tensor]


@composed("npu_confusion_transpose(Tensor self, int[] perm, int[] shape, bool transpose_first) -> Tensor")
def confusion_transpose(self: torch.Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> torch.Tensor:
    """Permuted, then reshaped; or the other way round."""
    if transpose_first:
        return self.permute(perm).reshape(shape).clone()
    return self.reshape(shape).permute(perm).contiguous().clone()


@composed("copy_memory_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)")
def copy_memory_(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """torch's copy_ from a tensor on the same device."""
    return self.copy_(src, non_blocking)


@composed("npu_transpose(Tensor self, int[] perm, bool require_contiguous=True) -> Tensor")
def transpose(self: torch.Tensor, perm: list[int], require_contiguous: bool = True) -> torch.Tensor:
    """Permuted, contiguous."""
    return self.permute(perm).clone(memory_format=torch.contiguous_format)


@composed("npu_broadcast(Tensor self, int[] size) -> Tensor")
def broadcast(self: torch.Tensor, size: list[int]) -> torch.Tensor:
    """Expanded, contiguous."""
    return self.expand(size).clone(memory_format=torch.contiguous_format)


@composed("npu_reshape(Tensor self, int[] shape, bool can_refresh=False) -> Tensor")
def reshape(self: torch.Tensor, shape: list[int], can_refresh: bool = False) -> torch.Tensor:
    """A copy of another shape."""
    return self.reshape(shape).clone()


@composed("npu_slice(Tensor self, int[] offsets, int[] size) -> Tensor")
def slice_(self: torch.Tensor, offsets: list[int], size: list[int]) -> torch.Tensor:
    """The box of `size` (-1: to the end) that begins at `offsets`."""
    result = self
    for axis, (begin, length) in enumerate(zip(offsets, size, strict=True)):
        length = self.shape[axis] - begin if length == -1 else length
        inside = begin >= 0 and begin + length <= self.shape[axis]
        require(inside, "npu_slice", f"offsets {offsets} and size {size} of {sizes(self)}", "a box inside the tensor")
        result = result.narrow(axis, begin, length)
    return result.clone(memory_format=torch.contiguous_format)


@composed(
    "npu_indexing(Tensor self, int[] begin, int[] end, int[] strides, int begin_mask=0, int end_mask=0, int ellipsis_mask=0, "
    "int new_axis_mask=0, int shrink_axis_mask=0) -> Tensor"
)
def indexing(
    self: torch.Tensor,
    begin: list[int],
    end: list[int],
    strides: list[int],
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> torch.Tensor:
    """Strided slice, with the masks of TensorFlow's StridedSlice: bit i is about entry i."""
    require(bin(ellipsis_mask).count("1") <= 1, "npu_indexing", f"ellipsis_mask {ellipsis_mask:#b}", "at most one bit")
    taken = sum(1 for i in range(len(begin)) if not (ellipsis_mask | new_axis_mask) >> i & 1)
    result, axis = self, 0
    for i, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        if ellipsis_mask >> i & 1:
            axis += self.dim() - taken
        elif new_axis_mask >> i & 1:
            result, axis = result.unsqueeze(axis), axis + 1
        elif shrink_axis_mask >> i & 1:
            result = result.select(axis, first)
        else:
            chosen = slice(None if begin_mask >> i & 1 else first, None if end_mask >> i & 1 else last, step)
            result, axis = _sliced(result, axis, chosen), axis + 1
    return result.clone(memory_format=torch.contiguous_format)


def _sliced(x: torch.Tensor, axis: int, chosen: slice) -> torch.Tensor:
    if (chosen.step or 1) > 0:
        return x[(slice(None),) * axis + (chosen,)]
    places = torch.arange(*chosen.indices(x.shape[axis]), device=x.device)
    return x.index_select(axis, places)


@composed("npu_pad(Tensor input, int[] paddings) -> Tensor")
def pad(input: torch.Tensor, paddings: list[int]) -> torch.Tensor:
    """Zeros before and after each axis: (before, after) of the first axis, of the second, ..."""
    require(len(paddings) == 2 * input.dim(), "npu_pad", f"{len(paddings)} paddings for {sizes(input)}", "two for each axis")
    pairs = [paddings[i : i + 2] for i in range(0, len(paddings), 2)]
    return functional.pad(input, [size for pair in reversed(pairs) for size in pair])


@composed(
    "npu_one_hot(Tensor self, int num_classes=-1, int depth=1, Scalar on_value=1, Scalar off_value=0) -> Tensor", differentiable=False
)
def one_hot(self: torch.Tensor, num_classes: int = -1, depth: int = 1, on_value: float = 1, off_value: float = 0) -> torch.Tensor:
    """float32 with a new last axis of `depth`: on_value at the class, off_value elsewhere (everywhere for classes outside)."""
    if num_classes != -1:
        refuse("npu_one_hot", f"num_classes={num_classes}", "it names the new axis, and only -1, the last, is documented")
    hit = self.unsqueeze(-1) == torch.arange(depth, device=self.device)
    return torch.where(hit, float(on_value), float(off_value)).to(torch.float32)


@composed("npu_sort_v2(Tensor self, int dim=-1, bool descending=False) -> Tensor")
def sort_v2(self: torch.Tensor, dim: int = -1, descending: bool = False) -> torch.Tensor:
    """Sorted values, without places."""
    return torch.sort(self, dim, descending).values


@composed("npu_max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
def max_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> _Pair:
    """Largest values along an axis, and their places as int32."""
    values, places = torch.max(self, dim, keepdim)
    return values, places.to(torch.int32)


@composed("npu_min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
def min_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> _Pair:
    """Smallest values along an axis, and their places as int32."""
    values, places = torch.min(self, dim, keepdim)
    return values, places.to(torch.int32)


@composed("npu_stride_add(Tensor self, Tensor other, Scalar offset1, Scalar offset2, Scalar c1_len) -> Tensor")
def stride_add(self: torch.Tensor, other: torch.Tensor, offset1: int, offset2: int, c1_len: int) -> torch.Tensor:
    """Sum of `c1_len` blocks of 16 channels (axis 1) of both, from the blocks offset1 and offset2 on; missing channels are zeros."""
    return _channel_blocks(self, int(offset1), int(c1_len)) + _channel_blocks(other, int(offset2), int(c1_len))


def _channel_blocks(x: torch.Tensor, first: int, count: int) -> torch.Tensor:
    begin, length = first * _CHANNELS_OF_A_BLOCK, count * _CHANNELS_OF_A_BLOCK
    part = x[:, begin : begin + length]
    return functional.pad(part, [0, 0] * (x.dim() - 2) + [0, length - part.shape[1]])


@composed("npu_stride_copy(Tensor self, int[] shape, int[] stride, Scalar storage_offset) -> Tensor")
def stride_copy(self: torch.Tensor, shape: list[int], stride: list[int], storage_offset: int) -> torch.Tensor:
    """A contiguous copy of a strided view."""
    return torch.as_strided(self, shape, stride, int(storage_offset)).clone(memory_format=torch.contiguous_format)


@composed("one_(Tensor(a!) self) -> Tensor(a!)")
def one_(self: torch.Tensor) -> torch.Tensor:
    """Ones, in place."""
    return self.fill_(1)


@composed("reverse(Tensor self, int[] axis) -> Tensor")
def reverse(self: torch.Tensor, axis: list[int]) -> torch.Tensor:
    """Flipped along axes."""
    return torch.flip(self, axis)


@composed("npu_sign_bits_pack(Tensor self, int size) -> Tensor", differentiable=False)
def sign_bits_pack(self: torch.Tensor, size: int) -> torch.Tensor:
    """(size, n) bytes of the signs of a vector, 1 for what is not negative, the first in the lowest bit; padded with zero bits."""
    require(self.dim() == 1, "npu_sign_bits_pack", sizes(self), "a vector")
    bits = functional.pad((self >= 0).to(torch.uint8), [0, -self.shape[0] % 8]).reshape(-1, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=self.device)
    require(bits.shape[0] % size == 0, "npu_sign_bits_pack", f"{bits.shape[0]} bytes in {size} rows", "rows of equal length")
    return (bits * weights).sum(-1, dtype=torch.uint8).reshape(size, -1)


@composed("npu_sign_bits_unpack(Tensor input, int size, ScalarType dtype) -> Tensor", differentiable=False)
def sign_bits_unpack(input: torch.Tensor, size: int, dtype: torch.dtype) -> torch.Tensor:
    """(size, n) of 1.0 and -1.0 for the set and clear bits of a vector of bytes, the lowest bit first."""
    places = torch.arange(8, dtype=torch.uint8, device=input.device)
    bits = input.reshape(-1, 1).bitwise_right_shift(places).bitwise_and(1)
    require(bits.numel() % size == 0, "npu_sign_bits_unpack", f"{bits.numel()} signs in {size} rows", "rows of equal length")
    return (bits.to(dtype) * 2 - 1).reshape(size, -1)


for _name in ("npu_indexing", "npu_transpose", "npu_broadcast", "npu_slice", "npu_sort_v2", "npu_reshape", "npu_stride_copy"):
    with_out(_name)
