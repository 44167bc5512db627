"""`--is_input_adjust_hw_layout`, `--is_output_adjust_hw_layout`: fp16 with sixteen channels beside each other (NC1HWC0)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from anycann.compiler import set_input_shapes
from anycann.support.errors import UsageError
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_request import ConvertRequest
from anycann.tools.atc_shapes import Shape

LANES = 16  # channels of fp16 beside each other


def adjust_layouts(model: ir.Model, request: ConvertRequest) -> tuple[ConvertRequest, dict[str, object]]:
    """Change `model` in place. (The request with the shapes of the changed inputs, what the metadata say.) Raises UsageError."""
    inputs = _chosen(request.input_hw_layout, request.input_fp16_nodes, "is_input_adjust_hw_layout", "input_fp16_nodes")
    outputs = _chosen(
        request.output_hw_layout, [value.name or "" for value in model.graph.outputs], "is_output_adjust_hw_layout", "outputs"
    )
    if not (inputs or outputs):
        return request, {}
    set_input_shapes(model.graph, request.shapes)
    for value in model.graph.inputs:
        if value.name in inputs:
            _split_input(model.graph, value)
    for number, value in enumerate(list(model.graph.outputs)):
        if value.name in outputs:
            model.graph.outputs[number] = _split_output(model.graph, value)
    shapes = {name: _split(shape) if name in inputs else shape for name, shape in request.shapes.items()}
    gears = tuple({name: _split(shape) if name in inputs else shape for name, shape in gear.items()} for gear in request.gears)
    return replace(request, shapes=shapes, gears=gears), {"hw_layout": [*inputs, *outputs]}  # type: ignore[arg-type]


def _chosen(flags: Sequence[bool], names: Sequence[str], option: str, of: str) -> list[str]:
    """The names whose flag is set; one flag is for all of them."""
    if not any(flags):
        return []
    if len(flags) not in (1, len(names)) or not names:
        reason = f"{len(flags)} values for {len(names)} {of}; accepted: one, or one for each"
        raise AtcUsageError("E10001", value=",".join(str(flag).lower() for flag in flags), parameter=f"--{option}", reason=reason)
    return [name for name, flag in zip(names, flags if len(flags) == len(names) else [True] * len(names), strict=True) if flag]


def _split(shape: Shape) -> Shape:
    """[N, C, H, W] -> [N, C1, H, W, 16]."""
    batch, channels, height, width = shape
    if not isinstance(channels, int) or channels < 1:
        raise UsageError(f"shape {list(shape)}: NC1HWC0 needs a known number of channels")
    return (batch, -(-channels // LANES), height, width, LANES)


def _sizes(value: ir.Value) -> tuple[int, int, int]:
    """Channels, height and width. Raises UsageError for another rank, and for open ones."""
    sizes = [] if value.shape is None else [size if isinstance(size, int) else None for size in value.shape]
    if len(sizes) != 4 or any(size is None for size in sizes[1:]):
        raise UsageError(f"{value.name!r} has shape {value.shape}; NC1HWC0 needs four sizes with known channels, height and width")
    return sizes[1], sizes[2], sizes[3]  # type: ignore[return-value]


def _split_input(graph: ir.Graph, value: ir.Value) -> None:
    """fp16 [N, C1, H, W, 16] -> what the input was before, for everything that reads it."""
    channels, height, width = _sizes(value)
    batch, uses = None if value.shape is None else value.shape[0], list(value.uses())
    blocks = -(-channels // LANES)
    value.shape = ir.Shape([batch, blocks, height, width, LANES])
    tape = Tape()
    turned = tape.op("Transpose", [value], {"perm": [0, 1, 4, 2, 3]}, name=f"{value.name}/lanes")
    flat = tape.op("Reshape", [turned, _integers(tape, 0, blocks * LANES, height, width)], name=f"{value.name}/channels")
    cut = tape.op("Slice", [flat, _integers(tape, 0), _integers(tape, channels), _integers(tape, 1)], name=f"{value.name}/cut")
    _name_all(tape, f"{value.name}/NC1HWC0")
    first = next(iter(graph), None)
    graph.extend(tape.nodes) if first is None else graph.insert_before(first, list(tape.nodes))
    for use in uses:
        use.node.replace_input_with(use.idx, cut)


def _split_output(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """The output in fp16 as [N, C1, H, W, 16]; it takes over the name."""
    channels, height, width = _sizes(value)
    blocks, name = -(-channels // LANES), value.name
    tape = Tape()
    half = tape.op("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, name=f"{name}/fp16")
    pads = _integers(tape, 0, 0, 0, 0, 0, blocks * LANES - channels, 0, 0)
    padded = tape.op("Pad", [half, pads], name=f"{name}/padded")
    apart = tape.op("Reshape", [padded, _integers(tape, 0, blocks, LANES, height, width)], name=f"{name}/apart")
    made = tape.op("Transpose", [apart], {"perm": [0, 1, 3, 4, 2]}, name=f"{name}/lanes")
    _name_all(tape, f"{name}/NC1HWC0")
    batch = None if value.shape is None else value.shape[0]
    value.name, made.name = f"{name}/NCHW", name
    made.type, made.shape = ir.TensorType(ir.DataType.FLOAT16), ir.Shape([batch, blocks, height, width, LANES])
    graph.extend(tape.nodes)
    return made


def _integers(tape: Tape, *numbers: int) -> ir.Value:
    return tape.op("Constant", [], {"value": ir.tensor(np.array(numbers, np.int64))})


def _name_all(tape: Tape, prefix: str) -> None:
    for number, node in enumerate(tape.nodes):
        node.name = node.name or f"{prefix}/{number}"
        node.outputs[0].name = f"{prefix}/{number}"
