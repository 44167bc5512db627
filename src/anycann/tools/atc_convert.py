"""Mode 0 of `atc`: compile a model, write the offline model, and say what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
import difflib
import importlib
import os
from pathlib import Path

import onnx_ir as ir

from anycann.codegen.space import ROUNDED, STRASSEN, WINOGRAD
from anycann.compiler import CompileOptions, Conversion, convert_model
from anycann.explain import Explanation, explain, slow_nodes
from anycann.om.ahead import model_ahead
from anycann.passes.pipeline import switches
from anycann.passes.rules import RULES
from anycann.runtime.thread_pool import prepare
from anycann.support.files import folder_of
from anycann.target.target import by_name
from anycann.tools.atc_frameworks import load_requested
from anycann.tools.atc_graph import apply_request
from anycann.tools.atc_hw_layout import adjust_layouts
from anycann.tools.atc_outcome import Outcome
from anycann.tools.atc_parse import CommandLine
from anycann.tools.atc_request import ConvertRequest, convert_request
from anycann.tools.atc_shapes import is_dynamic
from anycann.tools.atc_values import ALL_RULES
from anycann.tools.output import format_bytes, progress
from anycann.tuning.bank import require_folder

FUSION = "fusion"  # the switch of putting several nodes into one kernel
# The switches of algorithms that high_precision forbids, by operators that it is asked for.
EXACT = {WINOGRAD: ("Conv",), STRASSEN: ("MatMul", "Gemm"), ROUNDED: ("MatMul", "MatMulNBits")}
SWITCHES = (FUSION, *EXACT, *switches(), *(rule.name for rule in RULES))


def convert(line: CommandLine, words: Sequence[str]) -> Outcome:
    """Compile `--model` and write `--output`. Raises UsageError, ModelError, UnsupportedError or DeviceError."""
    request = convert_request(line)
    as_json = line["message_format"] == "json"
    if line["auto_tune_mode"]:
        importlib.import_module("anycann.tools.atc_tune").tune(request, line, as_json)
    model, request, notes = prepared_model(request)
    switched_off, unknown = switched_off_rules(request)
    path = output_path(request, model)
    with folder_of(path), model_ahead(path) as file, progress("compiling kernels", enabled=not as_json) as report:
        conversion = convert_model(model, compile_options(request, line, switched_off, notes), report, file.pool)
        prepare()
        file.finish(conversion.model)
    explained = explain(conversion) if request.explain else None
    lines = [*unknown, *(explained.lines() if explained else ()), *engine_lines(conversion)]
    if line.switch("display_model_info"):
        from anycann.tools.model_info import model_info

        lines += model_info(conversion.model).lines()
    return Outcome((*lines, f"{path}: {format_bytes(os.path.getsize(path))}"), facts(path, conversion, unknown, explained))


def prepared_model(request: ConvertRequest) -> tuple[ir.Model, ConvertRequest, dict[str, object]]:
    """The model as the options want it, the request with the inputs it has then, and what the metadata say of AIPP."""
    model, request = load_requested(request)
    apply_request(model, request)
    request, layouts = adjust_layouts(model, request)
    if not request.insert_op_conf:
        return model, request, dict(layouts)
    from anycann.tools.atc_aipp import apply_aipp

    request, notes = apply_aipp(model, request)
    return model, request, {**layouts, **notes}


def output_path(request: ConvertRequest, model: ir.Model) -> str:
    """The file that is written. A model left open by --input_shape, or by the model itself, has the system in its name."""
    declared = [value.shape for value in model.graph.inputs if value.name not in request.shapes]
    is_open = is_dynamic(request.shapes) or any(shape is None or not shape.is_static() for shape in declared)
    return request.named(is_open and not request.gears)


def compile_options(
    request: ConvertRequest, line: CommandLine, switched_off: frozenset[str], notes: Mapping[str, object] | None = None
) -> CompileOptions:
    """The request in the compiler's terms; `notes` are further metadata."""
    return CompileOptions(
        name=Path(request.model).stem,
        input_shapes=request.shapes,
        gears=request.gears,
        precision_mode=request.precision_mode,
        soc_version=request.soc.name,
        switched_off=switched_off,
        fuse=FUSION not in switched_off,
        target=by_name(request.target),
        workers=request.workers,
        arguments=dict(line.given),
        notes=notes or {},
        banks=tuple(require_folder(line[name], f"--{name}") for name in ("mdl_bank_path", "op_bank_path") if line[name]),
    )


def switched_off_rules(request: ConvertRequest) -> tuple[frozenset[str], tuple[str, ...]]:
    """(names to leave out, sentences about names that are not known here). `ALL` stands for every rule; single ones win over it."""
    everything = request.switches.get(ALL_RULES) == "off" or request.optimization_level == "O1"
    off = set(SWITCHES) if everything else set()
    unknown = []
    for name, state in request.switches.items():
        if name in SWITCHES:
            (off.discard if state == "on" else off.add)(name)
        elif name != ALL_RULES:
            near = difflib.get_close_matches(name, SWITCHES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"rules here: {', '.join(SWITCHES)}"
            unknown.append(f"[WARNING] rule {name} is not one of AnyCANN's and is ignored; {hint}")
    off |= {name for name, operators in EXACT.items() if any(_wants_exact(request, each) for each in operators)}
    return frozenset(off), tuple(unknown)


def _wants_exact(request: ConvertRequest, operator: str) -> bool:
    if request.op_precision.get(operator) == "high_precision":
        return True
    everywhere = not request.optypelist or operator in request.optypelist or request.op_select_implmode.endswith("_for_all")
    return request.op_select_implmode.startswith("high_precision") and everywhere


def engine_lines(conversion: Conversion) -> Iterator[str]:
    """What falls back to AiCpu is said out loud: how many operators, which, and why."""
    slow = slow_nodes(conversion.nodes)
    if not slow:
        return
    yield f"{sum(count for *_, count in slow)} of {len(conversion.nodes)} operators run on AiCpu (numpy on the host):"
    for op_type, reason, count in slow:
        yield f"  {count} {op_type}" + (f": {reason}" if reason else "")


def facts(path: str, conversion: Conversion, unknown: Sequence[str], explained: Explanation | None) -> dict[str, object]:
    """The same for `--message_format=json`."""
    engines: Mapping[str, int] = Counter(node.engine for node in conversion.nodes)
    return {
        "output": path,
        "bytes": os.path.getsize(path),
        "programs": list(conversion.model.programs),
        "engines": engines,
        "unknown_rules": list(unknown),
        "passes": {report.name: list(report.lines) for report in conversion.reports},
        **({} if explained is None else {"explanation": explained.facts()}),
    }
