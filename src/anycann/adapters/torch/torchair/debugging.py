"""The options under `config.debug`: graphs written to files, tables of operators, values of every node, graphs run without compiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import csv
from datetime import datetime, timezone
import itertools
import operator
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._functorch.aot_autograd import make_boxed_func

from anycann.adapters.torch.graph.graph_program import reasons
from anycann.adapters.torch.graph.report import GraphReport, name_of
from anycann.adapters.torch.torchair.compiler_config import CompilerConfig
from anycann.frontends.torch_fx.builder import numpy_dtype

_numbers = itertools.count()
# headings of the table, as TorchAir writes them: target, kind, state, calls, inputs, outputs
HEADINGS = ("目标函数", "函数类型", "支持状态", "调用次数", "输入统计", "输出统计")
SUPPORTED, UNSUPPORTED = "支持", "未支持"


class Debugging:
    """What a configuration asks for, graph by graph."""

    def __init__(self, config: CompilerConfig):
        self._config = config

    def replaced(self, kind: str, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """Called before a graph is compiled: what runs instead, if the options say so."""
        config, debug, number = self._config, self._config.debug, next(_numbers)
        for custom in (config.post_grad_custom_pre_pass.value, config.post_grad_custom_post_pass.value):
            if custom is not None:
                custom(module, inputs, config)
        if debug.graph_dump.type.value == "py":
            target(debug.graph_dump, f"dynamo_{kind}_graph_{number}", "py").write_text(module.print_readable(print_output=False))
        if debug.fx_summary.type.value:
            write_summary(module.graph, target(debug.fx_summary, f"summary_{number}", "csv"))
            if debug.fx_summary.skip_compile:
                return make_boxed_func(module.forward)
        if debug.data_dump.type.value:
            return _dumping(module, debug.data_dump)
        return make_boxed_func(module.forward) if debug.run_eagerly else None

    def watch(self, report: GraphReport) -> None:
        """Called after a graph was compiled."""
        dump = self._config.debug.graph_dump
        kind = dump.type.value
        if kind not in ("txt", "pbtxt"):
            return
        for number, part in report.program.compiled.items():
            path = target(dump, f"dynamo_optimized_graph_{next(_numbers)}_{report.kind}_{number}", kind)
            path.write_text(_graph_text(part.translated.model, kind))


def target(group: Any, name: str, ending: str) -> Path:
    """The file for something that is written out, named as TorchAir names them, in the folder that the option says."""
    rank = torch.distributed.get_rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else 0
    moment = datetime.now(tz=timezone.utc).strftime("%Y%m%d%H%M%S%f")
    folder = Path(dict(group.leaves()).get("path") or ".")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}_rank_{rank}_pid_{os.getpid()}_ts_{moment}.{ending}"


def _graph_text(model: Any, kind: str) -> str:
    import onnx
    import onnx_ir as ir

    proto = ir.to_proto(model)
    return str(proto) if kind == "pbtxt" else onnx.printer.to_text(proto)


# ---- tables
def write_summary(graph: torch.fx.Graph, path: Path) -> None:
    """A line for each operator: whether the engine has it, how often it is called, and with what types."""
    outside = {str(node.target): reason for node, reason in reasons(graph).items()}
    calls: dict[str, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            calls.setdefault(name_of(node), []).append(node)
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(HEADINGS)
        for name, nodes in calls.items():
            state = f"{UNSUPPORTED}: {outside[name]}" if name in outside else SUPPORTED
            inputs = sorted({", ".join(_type(source.meta.get("val")) for source in node.all_input_nodes) for node in nodes})
            outputs = sorted({_type(node.meta.get("val")) for node in nodes})
            writer.writerow([name, "call_function", state, len(nodes), "; ".join(inputs), "; ".join(outputs)])


def _type(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(_type(item) for item in value)})"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" if isinstance(value, torch.Tensor) else str(value)


# ---- values
def _dumping(module: torch.fx.GraphModule, group: Any) -> Callable[..., Any]:
    """The graph, run by PyTorch, with a .npy file for each tensor that it computes."""

    class Dump(torch.fx.Interpreter):
        """Writes what nodes result in."""

        def run_node(self, n: torch.fx.Node) -> Any:
            """The result of the node."""
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and n.op == "call_function":
                array = result.detach().cpu()
                array = array.float() if array.dtype == torch.bfloat16 else array
                np.save(target(group, f"{n.name}-{name_of(n)}.OUTPUT.0", "npy"), array.numpy().astype(_plain(array.dtype)))
            return result

    return make_boxed_func(lambda *args: Dump(module).run(*args))


def _plain(dtype: torch.dtype) -> Any:
    return numpy_dtype(dtype)
