"""`--insert_op_conf`: AIPP in front of the inputs, and what that makes of the shapes that the other options give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import onnx_ir as ir

from anycann.compiler import set_input_shapes
from anycann.frontends.aipp.configuration import Aipp, read_aipp
from anycann.frontends.aipp.graph import AXES, Source, insert_aipp, insert_dynamic_aipp, source_shape
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
    if not request.insert_op_conf:
        return request, {}
    if request.input_format not in _LAYOUTS:
        raise AtcUsageError(
            "E10001", value=request.input_format, parameter="--input_format", reason=f"AIPP wants pictures: {' or '.join(_LAYOUTS)}"
        )
    blocks = _read(request.insert_op_conf)
    set_input_shapes(model.graph, request.shapes)
    sources = insert_aipp(model.graph, [block for block in blocks if block.aipp_mode == "static"], request.input_format)
    settable = {_input_name(model, block): block for block in blocks if block.aipp_mode == "dynamic"}
    dynamic = [_insert_dynamic(model, value, settable[value.name], request) for value in list(model.graph.inputs) if value.name in settable]
    by_name = {source.name: source for source in sources}
    tables = {each.name: each.table for each in dynamic if each.table}
    shapes = {name: shape for name, shape in request.shapes.items() if name not in by_name and name not in tables}
    gears = tuple(
        dict(_in_source(by_name.get(name), tables.get(name, ""), name, sizes, request.input_format) for name, sizes in gear.items())
        for gear in request.gears
    )
    return replace(request, shapes=shapes, gears=gears), {
        "aipp": {source.name: facts(source) for source in sources},
        "dynamic_aipp": {each.name: each.facts for each in dynamic},
    }


@dataclass(frozen=True)
class _Dynamic:
    """An input with a dynamic AIPP, and the further input for its settings; "" where pictures are converted in front of the model."""

    name: str
    table: str
    facts: dict[str, object]


def _insert_dynamic(model: ir.Model, value: ir.Value, block: Aipp, request: ConvertRequest) -> _Dynamic:
    """Put the operator in front of the input, if its sizes are known, gears for the batch aside."""
    name = value.name or ""
    facts: dict[str, object] = {"max_src_image_size": block.max_src_image_size, "input_format": request.input_format}
    is_open = value.shape is not None and not isinstance(value.shape[0], int) and not request.gears
    table = f"aipp/{name}/settings"
    with context(f"while putting AIPP in front of input {name!r}"):
        sizes = None if is_open else insert_dynamic_aipp(model.graph, value, table, block.max_src_image_size, request.input_format)
    return _Dynamic(name, "", facts) if sizes is None else _Dynamic(name, table, {**facts, "table": table, "sizes": list(sizes)})


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


def _in_source(source: Source | None, table: str, name: str, sizes: tuple[int, ...], input_format: str) -> tuple[str, tuple[int, ...]]:
    """What a gear says of an input, in terms of the picture for one with AIPP: a shape, or that of the `table` of a dynamic one."""
    if table:
        return table, (sizes[0], WORDS)
    if source is None:
        return name, sizes
    batch, _, height, width = (sizes[axis] for axis in AXES[input_format])
    rows, columns = source.rows or height, source.columns or width
    return name, tuple(int(size or 0) for size in source_shape(source.block, batch, rows, columns))
