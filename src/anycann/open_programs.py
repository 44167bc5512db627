"""Programs for sizes that move, put together: the parts of an open graph, as it was compiled, become what runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import onnx

from anycann.graph.prepared import PreparedNode
from anycann.just_in_time import OpenHeads, OpenPart, OpenReady, OpenRows, Ready
from anycann.om.plan import Program, TensorSpec
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.loader import LoadedCode
from anycann.runtime.memory import numpy_dtype
from anycann.runtime.open_attention import AttentionKernel, AttentionNodes
from anycann.runtime.open_plan import plan
from anycann.runtime.open_program import HostNode, OpenProgram, Sized
from anycann.runtime.part_kernels import Kernels
from anycann.runtime.row_kernels import Budget, Host, RowKernels, Strip
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.records import dataclass
from anycann.target.target import Target

_Names: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Surroundings:
    """What a program runs with. load: a program with its code, ready to run; load_rows: one for a block of rows, and it is kept for as long
    as the open program, so it must not hold whoever keeps that.
    """

    target: Target
    opset: int
    pool: ThreadPool
    load: Callable[[Program, LoadedCode], CompiledProgram]
    load_rows: Callable[[Ready], CompiledProgram]


def open_program(ready: OpenReady, inputs: _Names, outputs: _Names, around: Surroundings) -> OpenProgram:
    """What runs `ready`, whose inputs and outputs are those of the model."""
    code, budget = LoadedCode(ready.code, around.target), Budget()
    parts = [_part(part, code, budget, around) for part in ready.parts]
    graph = ready.graph
    checked = {name: Sized(dtype.numpy) for name, dtype in zip(outputs, graph.dtypes, strict=True)}
    checked |= {name: Sized(type_.dtype.numpy, type_.shape) for name, type_ in graph.checked.items()}
    pool = around.pool
    return OpenProgram(parts, graph.constants, checked, inputs, outputs, lambda program, values: plan(program, values, pool))


def _part(
    part: OpenPart | OpenRows | OpenHeads | tuple[onnx.NodeProto, ...], code: LoadedCode, budget: Budget, around: Surroundings
) -> Kernels | RowKernels | tuple[HostNode, ...]:
    if isinstance(part, OpenRows):
        return _row_kernels(part, budget, around)
    if isinstance(part, OpenHeads):
        return (_attention(part, code, around),)
    if isinstance(part, tuple):
        return _on_host(part, around.opset)
    return Kernels(around.load(part.program, code), part.inputs, part.outputs)


def _on_host(nodes: Sequence[onnx.NodeProto], opset: int) -> tuple[HostNode, ...]:
    prepared = [(node, PreparedNode(node, opset, True, True)) for node in nodes]
    return tuple(HostNode(run, tuple(node.input), tuple(node.output), node.op_type, run.stated) for node, run in prepared)


def _attention(part: OpenHeads, code: LoadedCode, around: Surroundings) -> HostNode:
    """What runs attention; the last of its nodes gives its result."""
    kernel = AttentionKernel(part.what, part.turned, code.address(part.symbol), around.target.lanes, around.pool, code)
    nodes = _on_host(part.nodes, around.opset)
    return HostNode(AttentionNodes(kernel, nodes, part.inputs), part.inputs, nodes[-1].outputs)


def _row_kernels(part: OpenRows, budget: Budget, around: Surroundings) -> RowKernels:
    inputs, strips = tuple(spec.name for spec in part.inputs), _strips(part.inputs, part.axes)
    compile_for, load = part.compile_for, around.load_rows
    host = None if part.host is None else partial(_rows_on_host, part, around.opset)
    return RowKernels(lambda rows: load(compile_for(rows)), inputs, part.outputs, strips, part.output_axes, budget, host)


def _strips(specs: Sequence[TensorSpec], axes: Sequence[int | None]) -> list[Strip]:
    return [Strip(numpy_dtype(s.dtype), tuple(map(int, s.shape)), axis) for s, axis in zip(specs, axes, strict=True)]  # type: ignore[arg-type]


def _rows_on_host(part: OpenRows, opset: int) -> Host:
    """What computes rows without kernels."""
    assert part.host is not None
    protos, weights = part.host()
    nodes, names = _on_host(protos, opset), [spec.name for spec in part.inputs]
    strips = _strips(part.results, part.output_axes)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        values: dict[str, object] = {"": None, **weights, **dict(zip(names, arrays, strict=True))}
        for node in nodes:
            values.update(zip(node.outputs, node.evaluate([values[name] for name in node.inputs]), strict=True))
        results = [values[name] for name in part.outputs]
        fitting = [np.ascontiguousarray(result) for strip, result in zip(strips, results, strict=True) if strip.fits(result)]
        return fitting if len(fitting) == len(results) else None

    return run
