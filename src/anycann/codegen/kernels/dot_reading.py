"""How a convolution by dot products reads its input: in place or from a copy, with which channels, and in which pieces."""

from __future__ import annotations

from functools import lru_cache

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_tiles import TILE_GROUPS
from anycann.te import dtypes

_SPLIT_BYTES = 32  # the channels of a pixel, from which on windows are read pixel by pixel


def is_column(shape: ConvolutionShape) -> bool:
    """True if a row is one pixel: then rows lie one behind the other as pixels do."""
    return shape.in_size[-1] == 1 and shape.out_size[-1] == 1 and shape.kernel[-1] == 1 and shape.pads_begin[-1] == 0


def cut_window(shape: ConvolutionShape, whole: bool) -> tuple[int, int, int]:
    """(kernel rows, parts of a row, pixels in a part): a part lies in one piece, of several pixels if they are read whole."""
    rows, columns = shape.kernel[-2:]
    if not whole:
        return rows, columns, 1
    if is_column(shape) and shape.dilations[-2] == 1:
        return 1, 1, rows
    return (rows, 1, columns) if shape.dilations[-1] == 1 else (rows, columns, 1)


def _makes_groups(shape: ConvolutionShape) -> bool:
    """True if the channels of the input, as they are, make each part whole groups."""
    return cut_window(shape, shape.group == 1)[2] * shape.in_channels * shape.dtype.nbytes % GROUP_BYTES == 0


def tile_groups(groups: int) -> int:
    """Groups of a part that a matrix tile holds: parts take as few tiles as can be, the last of which begins earlier if it must."""
    return -(-groups // max(1, -(-groups // TILE_GROUPS)))


def needs_copy(shape: ConvolutionShape) -> bool:
    """True if the input cannot be read where it is: it has padding, signed bytes, or channels that make no whole groups."""
    if shape.dtype is dtypes.int8 or not _makes_groups(shape):
        return True
    return not (skips_rows(shape) or all(_inside(shape, axis) for axis in range(len(shape.in_size))))


def skips_rows(shape: ConvolutionShape) -> bool:
    """True if taps in rows of padding can be left out, for it is zeros, and only rows have some: 3 x 1 x 1 of networks for video."""
    return _makes_groups(shape) and _inside(shape, 1) and not _inside(shape, 0) and inner_share(shape) > 0


_FEW_INNER = 0.75  # so many of the taps' rows, in the mean, or fewer: then rows are not joined to leave the others out


def skips_copied_rows(shape: ConvolutionShape) -> bool:
    """True if so many taps meet rows of padding that they are left out of a copy too: wide dilations on small images."""
    return 0 < inner_share(shape) <= _FEW_INNER


@lru_cache(maxsize=64)
def inner_share(shape: ConvolutionShape) -> float:
    """Of the rows of the kernel those that meet rows of the image, in the mean of all output rows; 0 where one meets none, or they are
    not left out: padding is not zeros, or it is not a plane of rows.
    """
    if shape.dtype is not dtypes.bfloat16 or len(shape.in_size) != 2 or is_column(shape) or 0 in shape.out_size:
        return 0.0
    inner = [len(inner_taps(shape, row)) for row in range(shape.out_size[0])]
    return sum(inner) / (shape.out_size[0] * shape.kernel[0]) if min(inner) > 0 else 0.0


def inner_taps(shape: ConvolutionShape, row: int) -> range:
    """The rows of the kernel that an output row of a plane reads inside the image."""
    first, dilation = row * shape.strides[0] - shape.pads_begin[0], shape.dilations[0]
    return range(-(min(0, first) // dilation), min(shape.kernel[0], -((first - shape.in_size[0]) // dilation)))


def copied_channels(shape: ConvolutionShape) -> int:
    """Channels of a pixel of the copy: whole groups."""
    return shape.in_channels if _makes_groups(shape) else _whole(shape.in_channels, GROUP_BYTES // shape.dtype.nbytes)


def panel_channels(shape: ConvolutionShape, width: int) -> int:
    """Input channels of all groups that a panel of so many output channels belongs to, in whole groups of bytes."""
    outputs, together = shape.group_outputs, GROUP_BYTES // shape.dtype.nbytes
    starts = range(0, shape.out_channels, width)
    most = max(min(start + width, shape.out_channels) - 1 - start // outputs * outputs for start in starts) // outputs + 1
    return _whole(most * shape.group_inputs, together)


def _whole(count: int, size: int) -> int:
    """`count`, or the next multiple of `size`."""
    return -(-count // size) * size


def _inside(shape: ConvolutionShape, axis: int) -> bool:
    last = (shape.out_size[axis] - 1) * shape.strides[axis] - shape.pads_begin[axis] + (shape.kernel[axis] - 1) * shape.dilations[axis]
    return shape.pads_begin[axis] <= 0 and last < shape.in_size[axis]


def _may_split(shape: ConvolutionShape) -> bool:
    """True if the channels of one pixel, all of them, are enough to be a part of the window."""
    nbytes = shape.in_channels * shape.dtype.nbytes
    return shape.group == 1 and nbytes % GROUP_BYTES == 0 and nbytes >= _SPLIT_BYTES


def may_merge(shape: ConvolutionShape, planar: bool) -> bool:
    """True if the pixels of all rows of a task lie in one line, those between two rows (which nobody wants) included."""
    if is_column(shape):
        return True
    if shape.strides[-2:] != (1, 1):
        return not planar and _may_split(shape)
    if planar or needs_copy(shape):
        return True
    return shape.kernel[-1] == 1 and shape.out_size[-1] == shape.in_size[-1] and not skips_rows(shape)
