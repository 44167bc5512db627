"""AIPP in the graph: the input takes the picture as it comes, and ordinary nodes make of it what the input took before.

uint8 picture -> channel swap -> crop -> colour conversion -> (x - mean - min) * var_reci -> padding -> the model's layout and dtype
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from anycann.frontends.aipp.configuration import Aipp
from anycann.support.errors import UsageError, context

AXES = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 3, 1, 2)}  # where N, C, H, W are


Size: TypeAlias = int | None  # None: gears or runs decide


@dataclass(frozen=True)
class Source:
    """What an input takes once AIPP is in front of it: pictures of rows and columns of pixels."""

    name: str
    block: Aipp
    batch: Size
    rows: Size
    columns: Size

    @property
    def shape(self) -> tuple[Size, ...]:
        """The uint8 tensor."""
        return source_shape(self.block, self.batch, self.rows, self.columns)


def insert_aipp(graph: ir.Graph, blocks: Sequence[Aipp], input_format: str) -> tuple[Source, ...]:
    """Put each static block in front of its input, in place. Raises UsageError for what does not fit."""
    sources = []
    for block in blocks:
        if block.related_input_rank >= len(graph.inputs):
            raise UsageError(
                f"aipp_op is for input {block.related_input_rank} (related_input_rank); the model has inputs 0 to {len(graph.inputs) - 1}"
            )
        value = graph.inputs[block.related_input_rank]
        with context(f"while putting AIPP in front of input {value.name!r}"):
            sources.append(_insert(graph, value, block, input_format))
    return tuple(sources)


def source_shape(block: Aipp, batch: Size, rows: Size, columns: Size) -> tuple[Size, ...]:
    """The uint8 tensor of `batch` pictures: rows of pixels, the colours of YUV420SP in half as many rows behind the brightness."""
    if block.is_yuv:
        return (batch, None if rows is None else rows * 3 // 2, columns)
    channels = {"RGB888_U8": (3,), "XRGB8888_U8": (4,), "YUV400_U8": ()}[block.input_format]
    return (batch, rows, columns, *channels)


def _insert(graph: ir.Graph, value: ir.Value, block: Aipp, input_format: str) -> Source:
    shape = value.shape
    if shape is None or len(shape) != 4:
        raise UsageError(f"the input has shape {shape}; accepted: four sizes, as pictures have in {input_format}")
    batch, channels, height, width = (size if isinstance(size := shape[axis], int) else None for axis in AXES[input_format])
    if channels is None:
        raise UsageError(f"the input has shape {shape}; accepted: a known number of channels, which --input_shape gives")
    rows, columns = _picture_size(block, height, width)
    dtype, uses, outputs = value.dtype, list(value.uses()), [n for n, out in enumerate(graph.outputs) if out is value]
    source = Source(value.name or "", block, batch, rows, columns)
    value.type, value.shape = ir.TensorType(ir.DataType.UINT8), ir.Shape(source.shape)
    writer = _Writer(block, value.name or "input")
    made = writer.pixels(value, rows, columns, channels)
    made = writer.arranged(made, input_format, dtype or ir.DataType.FLOAT)
    first = next(iter(graph), None)
    graph.extend(writer.tape.nodes) if first is None else graph.insert_before(first, list(writer.tape.nodes))
    for use in uses:
        use.node.replace_input_with(use.idx, made)
    for number in outputs:
        graph.outputs[number] = made
    return source


def _picture_size(block: Aipp, height: Size, width: Size) -> tuple[Size, Size]:
    """Rows and columns of the source picture. Raises UsageError unless crop and padding make the model's size of them."""
    if height is None or width is None:
        if block.src_image_size_h or block.src_image_size_w or block.crop or block.padding:
            raise UsageError("the model's height and width are open; crop, padding and src_image_size_h and _w need fixed ones")
        return height, width
    rows, columns = block.src_image_size_h or height, block.src_image_size_w or width
    left_rows, left_columns = _cropped(block, rows, columns)
    if block.padding:
        left_rows += block.top_padding_size + block.bottom_padding_size
        left_columns += block.left_padding_size + block.right_padding_size
    if (left_rows, left_columns) != (height, width):
        raise UsageError(
            f"a picture of {rows} x {columns} (height x width) comes to {left_rows} x {left_columns} by crop and padding; "
            f"the model takes {height} x {width}"
        )
    if block.is_yuv and (rows % 2 or columns % 2):
        raise UsageError(f"a YUV420SP_U8 picture of {rows} x {columns}; accepted: even sizes")
    return rows, columns


def _cropped(block: Aipp, rows: int, columns: int) -> tuple[int, int]:
    if not block.crop:
        return rows, columns
    high, wide = block.crop_size_h or rows - block.load_start_pos_h, block.crop_size_w or columns - block.load_start_pos_w
    if block.load_start_pos_h + high > rows or block.load_start_pos_w + wide > columns:
        start = f"({block.load_start_pos_h}, {block.load_start_pos_w})"
        raise UsageError(f"a crop of {high} x {wide} from {start} reaches beyond a picture of {rows} x {columns}")
    return high, wide


class _Writer:
    """Writes the nodes of one block."""

    def __init__(self, block: Aipp, name: str):
        self.block, self.tape, self._name = block, Tape(), name

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: object) -> ir.Value:
        """One node and its output."""
        number = len(self.tape.nodes)
        made = self.tape.op(op_type, list(inputs), attributes or None, name=f"aipp/{self._name}/{number}_{op_type}")  # type: ignore[arg-type]
        made.name = f"aipp/{self._name}/{number}"
        return made

    def constant(self, array: np.ndarray) -> ir.Value:
        """A constant tensor."""
        return self.op("Constant", value=ir.tensor(array))

    def pixels(self, value: ir.Value, rows: Size, columns: Size, channels: int) -> ir.Value:
        """float32[N, C, H, W]: swapped, cropped, converted and normalised."""
        planes = self._yuv_planes(value, rows, columns) if self.block.is_yuv else self._packed_planes(value)
        planes = [self._crop(plane) for plane in planes]
        planes = [self.op("Cast", plane, to=int(ir.DataType.FLOAT)) for plane in planes]
        if self.block.csc_switch:
            if len(planes) < 3:
                raise UsageError(f"csc_switch converts three channels; {self.block.input_format} has {len(planes)}")
            planes = self._convert(planes[:3])
        if len(planes) < channels:
            raise UsageError(f"{self.block.input_format} gives {len(planes)} channels; the model takes {channels}")
        return self._pad([self._normalise(plane, number) for number, plane in enumerate(planes[:channels])])

    def _packed_planes(self, value: ir.Value) -> list[ir.Value]:
        """Planes [N, H, W] of pixels whose bytes lie side by side, in the order that the swaps ask for."""
        if self.block.input_format == "YUV400_U8":
            return [value]
        order = [0, 1, 2] if self.block.input_format == "RGB888_U8" else [0, 1, 2, 3]
        if len(order) == 4 and self.block.ax_swap_switch:
            order = [1, 2, 3, 0]
        if self.block.rbuv_swap_switch:
            order[0], order[2] = order[2], order[0]
        return [self.op("Gather", value, self.constant(np.array(channel, np.int64)), axis=3) for channel in order]

    def _yuv_planes(self, value: ir.Value, rows: Size, columns: Size) -> list[ir.Value]:
        """Y, U and V as [N, H, W]; each colour stands for two by two pixels."""
        high, wide = self._half(value, 1, rows, 3), self._half(value, 2, columns, 2)
        one, two, all_rows = self._integers(1), self._integers(2), self.op("Mul", high, self._integers(2))
        brightness = self.op("Slice", value, self._integers(0), all_rows, one)
        colours = self.op("Slice", value, all_rows, self._integers(np.iinfo(np.int64).max), one)
        pairs = self.op("Reshape", colours, self.op("Concat", self._integers(0), high, one, wide, one, two, axis=0))
        order = (1, 0) if self.block.rbuv_swap_switch else (0, 1)
        planes = [self.op("Gather", pairs, self.constant(np.array(channel, np.int64)), axis=5) for channel in order]
        spread = [self.op("Expand", plane, self._integers(1, 1, 2, 1, 2)) for plane in planes]
        whole = self.op("Concat", self._integers(0), all_rows, self.op("Mul", wide, two), axis=0)
        return [brightness, *(self.op("Reshape", plane, whole) for plane in spread)]

    def _half(self, value: ir.Value, axis: int, size: Size, parts: int) -> ir.Value:
        """int64[1]: half the rows or columns of pixels; an open size is asked of the tensor, of which they are 2 in `parts`."""
        if size is not None:
            return self._integers(size // 2)
        return self.op("Div", self.op("Shape", value, start=axis, end=axis + 1), self._integers(parts))

    def _crop(self, plane: ir.Value) -> ir.Value:
        block = self.block
        if not block.crop:
            return plane
        for axis, start, size in ((1, block.load_start_pos_h, block.crop_size_h), (2, block.load_start_pos_w, block.crop_size_w)):
            plane = self._slice(plane, axis, start, start + size if size else np.iinfo(np.int64).max)
        return plane

    def _convert(self, planes: Sequence[ir.Value]) -> list[ir.Value]:
        """YUV to RGB subtracts its bias before the product, RGB to YUV adds its own behind it; both take the integer part of 1/256."""
        block, yuv = self.block, self.block.is_yuv
        if yuv:
            planes = [self._plus(plane, -bias) for plane, bias in zip(planes, block.triple("input_bias"), strict=True)]
        converted = []
        for row, bias in zip(block.matrix(), block.triple("output_bias"), strict=True):
            terms = [self.op("Mul", plane, self._number(factor)) for plane, factor in zip(planes, row, strict=True)]
            total = self.op("Add", self.op("Add", terms[0], terms[1]), terms[2])
            whole = self.op("Floor", self.op("Mul", total, self._number(1 / 256)))
            whole = whole if yuv else self._plus(whole, bias)
            converted.append(self.op("Clip", whole, self._number(0), self._number(255)))
        return converted

    def _normalise(self, plane: ir.Value, channel: int) -> ir.Value:
        block = self.block
        shifted = self._plus(plane, -float(block.triple("mean_chn", 4)[channel]) - float(block.triple("min_chn", 4)[channel]))
        factor = float(block.triple("var_reci_chn", 4)[channel])
        return shifted if factor == 1 else self.op("Mul", shifted, self._number(factor))

    def _pad(self, planes: Sequence[ir.Value]) -> ir.Value:
        """The planes [N, H, W] side by side as [N, C, H, W], padded."""
        axis = self._integers(1)
        together = self.op("Concat", *(self.op("Unsqueeze", plane, axis) for plane in planes), axis=1)
        block = self.block
        if not block.padding:
            return together
        before, after = (0, 0, block.top_padding_size, block.left_padding_size), (0, 0, block.bottom_padding_size, block.right_padding_size)
        return self.op("Pad", together, self._integers(*before, *after), self._number(block.padding_value))

    def arranged(self, pixels: ir.Value, input_format: str, dtype: ir.DataType) -> ir.Value:
        """In the model's layout and dtype."""
        if input_format == "NHWC":
            pixels = self.op("Transpose", pixels, perm=[0, 2, 3, 1])
        return pixels if dtype == ir.DataType.FLOAT else self.op("Cast", pixels, to=int(dtype))

    def _plus(self, plane: ir.Value, number: float) -> ir.Value:
        return plane if not number else self.op("Add", plane, self._number(number))

    def _number(self, number: float) -> ir.Value:
        return self.constant(np.array(number, np.float32))

    def _slice(self, value: ir.Value, axis: int, start: int, end: int) -> ir.Value:
        return self.op("Slice", value, self._integers(start), self._integers(end), self._integers(axis))

    def _integers(self, *numbers: int) -> ir.Value:
        return self.constant(np.array(numbers, np.int64))
