"""`--insert_op_conf`: AIPP in front of the inputs, and what that makes of the shapes that the other options give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import onnx_ir as ir

from anycann.compiler import set_input_shapes
from anycann.frontends.aipp.configuration import Aipp, read_aipp
from anycann.frontends.aipp.graph import AXES, Settable, Source, insert_aipp, insert_dynamic_aipp, source_shape
from anycann.support.errors import UsageError, context
from anycann.support.files import file_error
from anycann.te.picture_table import WORDS
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_request import ConvertRequest

_LAYOUTS = tuple(AXES)


def apply_aipp(model: ir.Model, request: ConvertRequest) -> tuple[ConvertRequest, dict[str, object]]:
    """Change `model` in place. (The request with the shapes of the new inputs, what the metadata say of AIPP.)

    A dynamic block gives the model an input for the settings. Raises UsageError for a configuration that is damaged or does not fit.
    """
    if request.input_format not in _LAYOUTS:
        raise AtcUsageError(
            "E10001", value=request.input_format, parameter="--input_format", reason=f"AIPP wants pictures: {' or '.join(_LAYOUTS)}"
        )
    blocks = _read(request.insert_op_conf)
    set_input_shapes(model.graph, request.shapes)
    sources = insert_aipp(model.graph, [block for block in blocks if block.aipp_mode == "static"], request.input_format)
    settable = {_input_name(model, block): block for block in blocks if block.aipp_mode == "dynamic"}
    dynamic = {value.name: _insert_dynamic(model, value, settable, request) for value in list(model.graph.inputs) if value.name in settable}
    by_name = {source.name: source for source in sources}
    shapes = {name: shape for name, shape in request.shapes.items() if name not in by_name}
    gears = tuple(_of_pictures(gear, by_name, dynamic, request.input_format) for gear in request.gears)
    return replace(request, shapes=_of_pictures(shapes, {}, dynamic, request.input_format), gears=gears), {
        "aipp": {source.name: facts(source) for source in sources},
        "dynamic_aipp": {name: _dynamic_facts(each, settable[name], request.input_format) for name, each in dynamic.items()},
    }


def _insert_dynamic(model: ir.Model, value: ir.Value, settable: Mapping[str, Aipp], request: ConvertRequest) -> Settable:
    with context(f"while putting AIPP in front of input {value.name!r}"):
        return insert_dynamic_aipp(model.graph, value, settable[value.name or ""].max_src_image_size, request.input_format)


def _dynamic_facts(each: Settable, block: Aipp, input_format: str) -> Mapping[str, object]:
    """What the metadata of an offline model say of an input with dynamic AIPP; a height or width of -1 is that of its frame."""
    return {
        "max_src_image_size": block.max_src_image_size,
        "input_format": input_format,
        **{name: -1 if value is None else value for name, value in asdict(each).items()},
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
    made = {"channels": source.channels, "axes": source.axes, "dtype": source.dtype}
    return {**asdict(source.block), **{name: -1 if size is None else size for name, size in sizes.items()}, **made}


def _read(path: str) -> tuple[Aipp, ...]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise file_error(path, "read", error) from error  # type: ignore[arg-type]
    return read_aipp(text, path)


def _of_pictures(
    shapes: Mapping[str, tuple[Any, ...]], static: Mapping[str, Source], dynamic: Mapping[str, Settable], input_format: str
) -> dict[str, tuple[Any, ...]]:
    """Shapes of the inputs of a model in terms of what takes their place: the pictures of a static AIPP, the settings of a dynamic one."""
    found = dict(shapes)
    for name in shapes.keys() & (static.keys() | dynamic.keys()):
        batch, _, height, width = (found[name][axis] for axis in AXES[input_format])
        if name in static:
            source = static[name]
            found[name] = source_shape(source.block, batch, source.rows or height, source.columns or width)
            continue
        del found[name]
        found[dynamic[name].table] = (batch, WORDS)
        if dynamic[name].frame:
            found[dynamic[name].frame] = (0, height, width)
    return found
