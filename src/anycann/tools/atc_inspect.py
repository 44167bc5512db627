"""The modes of `atc` that look at a model: 1 (to JSON), 3 (check only) and 6 (show what an offline model is)."""

from __future__ import annotations

from collections.abc import Sequence
import json

import onnx_ir as ir

from anycann.support.errors import UsageError
from anycann.support.files import write_whole
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_frameworks import load_original
from anycann.tools.atc_outcome import Outcome
from anycann.tools.atc_parse import CommandLine
from anycann.tools.atc_request import check_framework
from anycann.tools.atc_shapes import parse_input_shape
from anycann.tools.model_files import holds_offline_model, load_graph, load_offline_model
from anycann.tools.model_info import model_info
from anycann.tools.model_json import Json, model_json
from anycann.tools.operators import possible_engine


def write_model_json(line: CommandLine, words: Sequence[str]) -> Outcome:
    """Mode 1: `--om` (an offline model, or an original one with --framework) to `--json`."""
    for name in ("om", "json"):
        if not line[name]:
            raise AtcUsageError("E10004", parameter=name)
    graph = _original(line, line["om"]) if line["framework"] else load_graph(line["om"])
    text = json.dumps(model_json(graph, line.switch("dump_mode")), indent=2, ensure_ascii=False)
    write_whole(line["json"], text.encode())
    return Outcome(facts={"json": line["json"]})


def _original(line: CommandLine, path: str) -> ir.Model:
    """The graph of a framework's model. Raises UsageError for an offline model."""
    check_framework(line)
    if holds_offline_model(path):
        raise UsageError(f"{path} is an offline model; --framework is for original models")
    return load_original(path, line["framework"], parse_input_shape(line["input_shape"]))


def display_model_info(line: CommandLine, words: Sequence[str]) -> Outcome:
    """Mode 6: what `--om` was made with and what it takes."""
    if not line["om"]:
        raise AtcUsageError("E10004", parameter="om")
    info = model_info(load_offline_model(line["om"]))
    return Outcome(tuple(info.lines()), info.facts())


def check_model(line: CommandLine, words: Sequence[str]) -> Outcome:
    """Mode 3: read the model and say of every operator whether it can be compiled, in `--check_report`."""
    if not line["model"]:
        raise AtcUsageError("E10054", parameter="--model")
    check_framework(line)
    rows = [_check_node(node) for node in _original(line, line["model"]).graph.all_nodes()]
    failed = [row for row in rows if row["result"] == "failed"]
    report = {"model": {"file": line["model"], "result": "failed" if failed else "success"}, "op": rows}
    write_whole(line["check_report"], json.dumps(report, indent=2, ensure_ascii=False).encode())
    if failed:
        names = ", ".join(f"{row['name']} ({row['type']})" for row in failed[:5])
        raise AtcUnsupportedError(f"{len(failed)} of {len(rows)} operators can not be compiled: {names}; see {line['check_report']}")
    return Outcome(facts={"check_report": line["check_report"], "operators": len(rows)})


def _check_node(node: ir.Node) -> Json:
    """One row of the report."""
    row: Json = {"name": node.name, "type": node.op_type, "result": "success"}
    engine = possible_engine(node)
    if engine is not None:
        return {**row, "engine": engine}
    cause = {
        "code": "E19010",
        "message": f"No parser is registered for Op [{node.name}, optype [{node.domain or 'ai.onnx'}::{node.op_type}]].",
    }
    return {**row, "result": "failed", "cause": [cause]}
