"""`--insert_op_conf`: AIPP in front of the inputs, and what that makes of the shapes that the other options give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import onnx_ir as ir

from anycann.compiler import set_input_shapes
from anycann.frontends.aipp.configuration import Aipp, read_aipp
from anycann.frontends.aipp.graph import AXES, Source, insert_aipp, source_shape
from anycann.support.errors import UsageError
from anycann.support.files import file_error
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_request import ConvertRequest

_LAYOUTS = tuple(AXES)


def apply_aipp(model: ir.Model, request: ConvertRequest) -> tuple[ConvertRequest, dict[str, object]]:
    """Change `model` in place. (The request with the shapes of the new inputs, what the metadata say of AIPP.)

    A dynamic block changes nothing here: programs of AscendCL set it, and what it says is compiled then. Raises UsageError for a
    configuration that is damaged or does not fit.
    """
    if not request.insert_op_conf:
        return request, {}
    if request.input_format not in _LAYOUTS:
        raise AtcUsageError(
            "E10001", value=request.input_format, parameter="--input_format", reason=f"AIPP wants pictures: {' or '.join(_LAYOUTS)}"
        )
    blocks = _read(request.insert_op_conf)
    set_input_shapes(model.graph, request.shapes)
    sources = insert_aipp(model.graph, [block for block in blocks if block.aipp_mode == "static"], request.input_format)
    dynamic = {
        _input_name(model, block): {"max_src_image_size": block.max_src_image_size, "input_format": request.input_format}
        for block in blocks
        if block.aipp_mode == "dynamic"
    }
    by_name = {source.name: source for source in sources}
    shapes = {name: shape for name, shape in request.shapes.items() if name not in by_name}
    gears = tuple(
        {name: _in_source(by_name.get(name), sizes, request.input_format) for name, sizes in gear.items()} for gear in request.gears
    )
    return replace(request, shapes=shapes, gears=gears), {
        "aipp": {source.name: facts(source) for source in sources},
        "dynamic_aipp": dynamic,
    }


def _input_name(model: ir.Model, block: Aipp) -> str:
    inputs = model.graph.inputs
    if block.related_input_rank >= len(inputs):
        raise UsageError(
            f"aipp_op is for input {block.related_input_rank} (related_input_rank); the model has inputs 0 to {len(inputs) - 1}"
        )
    return inputs[block.related_input_rank].name or ""


def facts(source: Source) -> Mapping[str, object]:
    """What the metadata of an offline model say of an input with AIPP; open sizes are -1."""
    sizes = {"batch": source.batch, "rows": source.rows, "columns": source.columns}
    return {**asdict(source.block), **{name: -1 if size is None else size for name, size in sizes.items()}}


def _read(path: str) -> tuple[Aipp, ...]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise file_error(path, "read", error) from error  # type: ignore[arg-type]
    return read_aipp(text, path)


def _in_source(source: Source | None, sizes: tuple[int, ...], input_format: str) -> tuple[int, ...]:
    """The shape of a gear, in terms of the picture for an input with AIPP."""
    if source is None:
        return sizes
    batch, _, height, width = (sizes[axis] for axis in AXES[input_format])
    rows, columns = source.rows or height, source.columns or width
    return tuple(int(size or 0) for size in source_shape(source.block, batch, rows, columns))
