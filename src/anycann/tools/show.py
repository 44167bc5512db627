"""`anycann show`: what is in an offline model, or what becomes of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
import onnx_ir as ir
from rich.table import Table

from anycann.om.plan import TensorSpec
from anycann.support.errors import UsageError
from anycann.tools.atc_shapes import parse_input_shape
from anycann.tools.model_files import holds_offline_model, load_graph, open_info, optimised_graph, write_graph
from anycann.tools.model_info import ModelInfo, ProgramInfo
from anycann.tools.model_options import model_argument
from anycann.tools.operators import count_operators
from anycann.tools.output import console, format_bytes, format_count, format_dims, json_option, print_json, table

_MANY = 12  # programs or operator types before the rest is summed up


@click.command("show")
@model_argument
@click.option("--shape", default="", help='Sizes an .onnx model leaves open: "images:1,3,640,640".')
@click.option("--graph", "graph_path", type=click.Path(dir_okay=False), help="Write the graph as an ONNX file, for Netron.")
@json_option
def show_command(model: str, shape: str, graph_path: str | None, as_json: bool) -> None:
    """Say what is in MODEL: inputs, outputs, gears, engines, memory, arithmetic, kernels. An .onnx is compiled for that, in memory."""
    if shape and holds_offline_model(model):
        raise UsageError("--shape is for .onnx models: the shapes of an .om were chosen when it was made")
    info = open_info(model, parse_input_shape(shape), quiet=as_json)
    written = write_graph(_graph(model, info), graph_path) if graph_path else ""
    if as_json:
        print_json({"model": model, **info.facts(), **({"graph": written} if written else {})})
        return
    out = console()
    for part in _parts(model, info):
        out.print(part, markup=False)
    if written:
        out.print(f"\ngraph written to {written}", markup=False)


def _graph(model: str, info: ModelInfo) -> ir.Model:
    """The graph after all passes for the first program; as the file has it where no shapes are known."""
    graph = load_graph(model)
    return optimised_graph(graph, info.programs[0].inputs) if info.programs else graph


def _parts(model: str, info: ModelInfo) -> Iterator[Table | str]:
    """Heading, tensors, programs, engines."""
    yield f"{model}: {info.name}, made by {info.producer} for {info.soc_version} ({info.precision})"
    yield ""
    yield table(("", "name", "dtype", "shape"), [*_tensor_rows("input", info.inputs), *_tensor_rows("output", info.outputs)])
    yield ""
    yield _memory_line(info)
    if info.programs:
        yield f"\nprograms, {len(info.gears)} gears" if info.gears else "\nprograms"
        yield _programs_table(info)
        yield "\nengines"
        yield _engines_table(info.operators("aicore"), info.operators("aicpu"))
    else:
        counts = count_operators(load_graph(model))
        yield "\nengines, once shapes are known"
        yield _engines_table(counts["AiCore"], counts["AiCpu"])


def _tensor_rows(kind: str, specs: tuple[TensorSpec, ...]) -> Iterator[tuple[str, str, str, str]]:
    for spec in specs:
        yield kind, spec.name, spec.dtype, format_dims(spec.shape)


def _memory_line(info: ModelInfo) -> str:
    code = ", ".join(f"{format_bytes(size)} code for {target.split('|')[1]}" for target, size in info.code_bytes.items()) or "no code"
    peak = f"{format_bytes(info.peak_bytes)} at most while running"
    return f"memory: {format_bytes(info.constants_bytes)} constants, {format_bytes(info.graph_bytes)} graph, {code}; {peak}"


def _programs_table(info: ModelInfo) -> Table:
    columns = ("program", "arena", "FLOPs", "launches", "kernels", "AiCpu steps", "regions")
    rows = [_program_row(program) for program in info.programs[:_MANY]]
    hidden = len(info.programs) - len(rows)
    if hidden > 0:
        rows.append((f"and {hidden} more", "", "", "", "", "", ""))
    return table(columns, rows, numbers=columns[1:])


def _program_row(program: ProgramInfo) -> tuple[str, ...]:
    counts = (program.launches, program.kernels, program.host_steps, program.region_steps)
    name = f"{program.region}: {program.key}" if program.region else program.key
    return (name, format_bytes(program.arena_bytes), format_count(program.flops), *map(str, counts))


def _engines_table(aicore: Mapping[str, int], aicpu: Mapping[str, int]) -> Table:
    """Operators by type and engine, those on the host first."""
    types = sorted({*aicore, *aicpu}, key=lambda name: (-aicpu.get(name, 0), -aicore.get(name, 0), name))
    rows = [(name, aicore.get(name, ""), aicpu.get(name, "")) for name in types]
    return table(("operator", "AiCore", "AiCpu"), rows, numbers=("AiCore", "AiCpu"))
