"""AIPP in the graph: the input takes the picture as it comes, and the operator `anycann.Aipp` makes of it what the input took before.

uint8 picture -> channel swap -> crop -> colour conversion -> (x - mean - min) * var_reci -> padding -> the model's layout and dtype

With a dynamic AIPP it is `anycann.DynamicAipp`, and a further input says what is done to the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from anycann.frontends.aipp.configuration import Aipp
from anycann.graph.ops.device import DOMAIN
from anycann.support.errors import UsageError, context
from anycann.support.records import dataclass
from anycann.te.picture_table import WORDS

AXES = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 3, 1, 2)}  # where N, C, H, W are


Size: TypeAlias = int | None  # None: gears or runs decide


@dataclass(frozen=True)
class Source:
    """What an input takes once AIPP is in front of it (pictures of rows and columns of pixels), and
    what the model itself took: `channels`, in the order `axes`, of `dtype`."""

    name: str
    block: Aipp
    batch: Size
    rows: Size
    columns: Size
    channels: int
    axes: str
    dtype: str

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


def _dimensions(value: ir.Value, input_format: str) -> tuple[Any, Any, Any, Any]:
    """The batch, channels, height and width of an input; what is open is no int. Raises UsageError for what is no picture."""
    if value.shape is None or len(value.shape) != 4:
        raise UsageError(f"the input has shape {value.shape}; accepted: four sizes, as pictures have in {input_format}")
    batch, channels, height, width = (value.shape[axis] for axis in AXES[input_format])
    if not isinstance(channels, int):
        raise UsageError(f"the input has shape {value.shape}; accepted: a known number of channels, which --input_shape gives")
    return batch, channels, height, width


def _insert(graph: ir.Graph, value: ir.Value, block: Aipp, input_format: str) -> Source:
    batch, channels, height, width = (size if isinstance(size, int) else None for size in _dimensions(value, input_format))
    assert channels is not None
    rows, columns = picture_size(block, height, width)
    kind = value.dtype or ir.DataType.FLOAT
    source = Source(value.name or "", block, batch, rows, columns, channels, input_format, kind.numpy().name)
    attributes = operator_attributes(block, channels, rows, columns)
    _put_in_front(graph, value, source.shape, _nodes("Aipp", [value], attributes, input_format, kind))
    return source


@dataclass(frozen=True)
class Settable:
    """What a dynamic AIPP makes, and the inputs it adds: the `table` of settings, and where gears or runs decide height or width a `frame`
    without bytes, whose shape is [0, height, width] ("" otherwise)."""

    table: str
    frame: str
    channels: int
    height: Size
    width: Size


def insert_dynamic_aipp(graph: ir.Graph, value: ir.Value, nbytes: int, input_format: str) -> Settable:
    """Let an input take `nbytes` of pictures, and further inputs what becomes of them; the batch of the table is that of the input.

    Raises UsageError for an input that is no picture of a known number of channels.
    """
    batch, channels, *frame = _dimensions(value, input_format)
    height, width = (size if isinstance(size, int) else None for size in frame)
    is_open, kind = height is None or width is None, value.dtype or ir.DataType.FLOAT
    found = Settable(f"aipp/{value.name}/settings", f"aipp/{value.name}/frame" if is_open else "", channels, height, width)
    table = ir.Value(name=found.table, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape([batch, WORDS]))
    graph.inputs.append(table)
    tape, name = Tape(), f"aipp/{value.name}/size"
    if is_open:
        graph.inputs.append(ir.Value(name=found.frame, type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape([0, *frame])))
        size = tape.op("Shape", [graph.inputs[-1]], {"start": 1}, name=name)
        size.name = name
    else:
        size = tape.initializer(ir.tensor(np.array([height, width], np.int64)), name)
        graph.register_initializer(size)
    made = _nodes("DynamicAipp", [value, table, size], {"channels": channels}, input_format, kind)
    _put_in_front(graph, value, (nbytes,), [*tape.nodes, *made])
    return found


def _put_in_front(graph: ir.Graph, value: ir.Value, shape: Sequence[Size], nodes: Sequence[ir.Node]) -> None:
    """Begin the graph with `nodes`, and let `value` take bytes of that shape: what it was is what they make."""
    own = set(nodes)
    uses, outputs = [use for use in value.uses() if use.node not in own], [n for n, out in enumerate(graph.outputs) if out is value]
    value.type, value.shape = ir.TensorType(ir.DataType.UINT8), ir.Shape(shape)
    made, first = nodes[-1].outputs[0], next(iter(graph), None)
    graph.extend(nodes) if first is None else graph.insert_before(first, nodes)
    graph.opset_imports.setdefault(DOMAIN, 1)
    for use in uses:
        use.node.replace_input_with(use.idx, made)
    for number in outputs:
        graph.outputs[number] = made


def picture_size(block: Aipp, height: Size, width: Size) -> tuple[Size, Size]:
    """Rows and columns of the source picture. Raises UsageError unless crop and padding make the model's size of them."""
    if height is None or width is None:
        if block.src_image_size_h or block.src_image_size_w or block.crop or block.padding:
            raise UsageError("the model's height and width are open; crop, padding and src_image_size_h and _w need fixed ones")
        return height, width
    rows, columns = block.src_image_size_h or height, block.src_image_size_w or width
    left_rows, left_columns = made_size(block, rows, columns)
    if (left_rows, left_columns) != (height, width):
        raise UsageError(
            f"a picture of {rows} x {columns} (height x width) comes to {left_rows} x {left_columns} by crop and padding; "
            f"the model takes {height} x {width}"
        )
    if block.is_yuv and (rows % 2 or columns % 2):
        raise UsageError(f"a YUV420SP_U8 picture of {rows} x {columns}; accepted: even sizes")
    return rows, columns


def made_size(block: Aipp, rows: int, columns: int) -> tuple[int, int]:
    """Height and width of what becomes of a picture of rows x columns. Raises UsageError for a crop beyond it."""
    high, wide = _cropped(block, rows, columns)
    if block.padding:
        high += block.top_padding_size + block.bottom_padding_size
        wide += block.left_padding_size + block.right_padding_size
    return high, wide


def _cropped(block: Aipp, rows: int, columns: int) -> tuple[int, int]:
    if not block.crop:
        return rows, columns
    high, wide = block.crop_size_h or rows - block.load_start_pos_h, block.crop_size_w or columns - block.load_start_pos_w
    if block.load_start_pos_h + high > rows or block.load_start_pos_w + wide > columns:
        start = f"({block.load_start_pos_h}, {block.load_start_pos_w})"
        raise UsageError(f"a crop of {high} x {wide} from {start} reaches beyond a picture of {rows} x {columns}")
    return high, wide


def operator_attributes(block: Aipp, channels: int, rows: Size, columns: Size) -> dict[str, Any]:
    """What the operator `anycann.Aipp` is told of a block, for a picture of rows x columns. Raises UsageError for what does not fit."""
    return _attributes(block, channels) | _frame(block, rows, columns)


def _attributes(block: Aipp, channels: int) -> dict[str, Any]:
    """What the operator `anycann.Aipp` is told of a block. Raises UsageError for channels that the format does not have."""
    order = _order(block)
    if block.csc_switch and len(order) < 3:
        raise UsageError(f"csc_switch converts three channels; {block.input_format} has {len(order)}")
    if (3 if block.csc_switch else len(order)) < channels:
        raise UsageError(f"{block.input_format} gives {len(order)} channels; the model takes {channels}")
    subtracted = [float(mean) + float(least) for mean, least in zip(block.triple("mean_chn", 4), block.triple("min_chn", 4), strict=True)]
    factors = [float(factor) for factor in block.triple("var_reci_chn", 4)]
    found: dict[str, Any] = {"input_format": block.input_format, "channels": channels, "order": order}
    if any(subtracted[:channels]):
        found["subtracted"] = subtracted[:channels]
    if any(factor != 1 for factor in factors[:channels]):
        found["factors"] = factors[:channels]
    if block.csc_switch:  # YUV to RGB subtracts its bias before the product, RGB to YUV adds its own behind it
        found["matrix"] = [float(factor) for row in block.matrix() for factor in row]
        name = "input_bias" if block.is_yuv else "output_bias"
        found[name] = [float(bias) for bias in block.triple(name)]
    return found


def _order(block: Aipp) -> list[int]:
    """Which sample of a pixel comes first, second ... once the swaps are done."""
    if block.input_format == "YUV400_U8":
        return [0]
    if block.is_yuv:
        return [0, 2, 1] if block.rbuv_swap_switch else [0, 1, 2]
    order = [0, 1, 2] if block.input_format == "RGB888_U8" else [0, 1, 2, 3]
    if len(order) == 4 and block.ax_swap_switch:
        order = [1, 2, 3, 0]
    if block.rbuv_swap_switch:
        order[0], order[2] = order[2], order[0]
    return order


def _frame(block: Aipp, rows: Size, columns: Size) -> dict[str, Any]:
    """Crop and padding, which go with known sizes."""
    found: dict[str, Any] = {}
    if block.crop and rows is not None and columns is not None:
        found["crop"] = [block.load_start_pos_h, block.load_start_pos_w, *_cropped(block, rows, columns)]
    if block.padding:
        found["pads"] = [block.top_padding_size, block.left_padding_size, block.bottom_padding_size, block.right_padding_size]
        found["padding"] = float(block.padding_value)
    return found


def _nodes(op_type: str, operands: Sequence[ir.Value], attributes: dict[str, Any], input_format: str, dtype: ir.DataType) -> list[ir.Node]:
    """The operator, and what brings its result into the model's layout and dtype."""
    tape, name = Tape(), operands[0].name or "input"

    def op(op_type: str, operands: Sequence[ir.Value], domain: str, attributes: dict[str, Any]) -> ir.Value:
        made = tape.op(op_type, operands, attributes, domain=domain, name=f"aipp/{name}/{op_type}")
        made.name = f"aipp/{name}/{op_type}"
        return made

    made = op(op_type, operands, DOMAIN, attributes)
    if dtype != ir.DataType.FLOAT:
        made = op("Cast", [made], "", {"to": int(dtype)})
    if input_format == "NHWC":  # last: most models begin with a Transpose to NCHW, and the two are nothing together
        op("Transpose", [made], "", {"perm": [0, 2, 3, 1]})
    return list(tape.nodes)
