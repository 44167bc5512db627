"""Precision modes: which dtype values are kept in.

A 16-bit mode rounds every float32 value that a kernel stores to the 16-bit type, weights and inputs included, while sums are float32:
what a program computed on the chip would see. The storage stays four bytes wide, so kernels keep their speed; but where the processor
multiplies bfloat16, kernels hand each other bfloat16 (passes/narrow.py), and what is not narrow is not rounded, nor biases and scales.

Operators may be kept out of it, by name or type: what they read of each other, of the model's inputs and of weights, and the outputs of the
model that they make, stay as they are. What another operator reads is rounded for it.
"""

from __future__ import annotations

from functools import lru_cache
import json

import onnx_ir as ir

from anycann.graph.sources import source_names
from anycann.support.errors import ModelError, UsageError
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType

KEEP_TYPES = "must_keep_origin_dtype"
STORAGE: dict[str, DType | None] = {
    KEEP_TYPES: None,
    "origin": None,
    "force_fp32": None,
    "cube_fp16in_fp32out": None,
    "allow_fp32_to_fp16": None,
    "allow_fp32_to_bf16": None,
    "force_fp16": dtypes.float16,
    "fp16": dtypes.float16,
    "allow_mix_precision": dtypes.float16,
    "allow_mix_precision_fp16": dtypes.float16,
    "mixed_float16": dtypes.float16,
    "allow_mix_precision_bf16": dtypes.bfloat16,
    "mixed_bfloat16": dtypes.bfloat16,
}


def storage_of(precision_mode: str) -> DType | None:
    """The type a precision mode keeps float32 values in; None: as they are. Raises UsageError for an unknown mode."""
    if precision_mode not in STORAGE:
        raise UsageError(f"precision mode {precision_mode!r} is unknown; accepted: {', '.join(STORAGE)}")
    return STORAGE[precision_mode]


_NOTE = "anycann.kept"  # key in the graph's metadata: {"nodes": [...], "types": [...]} as JSON


@dataclass(frozen=True)
class Kept:
    """Operators that keep the model's types: by the names of nodes of the model, or by ONNX's operator types."""

    nodes: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def __contains__(self, node: ir.Node) -> bool:
        """True for a node that is kept, or that a rule made of one."""
        return node.op_type in self.types or not self.nodes.isdisjoint(source_names(node))


def set_kept(graph: ir.Graph, kept: Kept) -> None:
    """Write it to the graph's metadata, so that it holds for shapes that are met later too. Types are those before rules as well."""
    nodes = kept.nodes | {node.name for node in graph if node.op_type in kept.types and node.name}
    if nodes or kept.types:
        graph.metadata_props[_NOTE] = json.dumps({"nodes": sorted(nodes), "types": sorted(kept.types)})


def kept_operators(graph: ir.Graph | None) -> Kept:
    """What set_kept wrote. Raises ModelError for something else."""
    note = None if graph is None else graph.metadata_props.get(_NOTE)
    return Kept() if note is None else _read(note)


@lru_cache(maxsize=1)
def _read(note: str) -> Kept:
    try:
        return Kept(**{key: frozenset(map(str, names)) for key, names in json.loads(note).items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"the graph's {_NOTE!r} is {note!r:.60}; accepted: lists of nodes and types as JSON") from error


def is_exact(value: ir.Value) -> bool:
    """True for a value that kept operators make and read, or a known one that only they read, or a kept output of the model."""
    producer, readers = value.producer(), [node for node, _ in value.uses()]
    graph = producer.graph if producer is not None else readers[0].graph if readers else None
    kept = kept_operators(graph if isinstance(graph, ir.Graph) else None)
    if producer is None:
        return bool(readers) and all(node in kept for node in readers)
    return producer in kept and (value.is_graph_output() or any(node in kept for node in readers))


def round_inputs(graph: ir.Graph, storage: DType) -> None:
    """x -> Cast(Cast(x, storage), float32), for each float32 input x, where other than kept operators read it."""
    kept = kept_operators(graph)
    to_storage = ir.DataType.FLOAT16 if storage is dtypes.float16 else ir.DataType.BFLOAT16
    for value in list(graph.inputs):
        if value.dtype != ir.DataType.FLOAT:
            continue
        uses = [use for use in value.uses() if use.node not in kept]
        if not uses:
            continue
        narrow = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to_storage))], name=f"{value.name}/narrow")
        wide = ir.Node("", "Cast", [narrow.outputs[0]], [ir.AttrInt64("to", int(ir.DataType.FLOAT))], name=f"{value.name}/wide")
        narrow.outputs[0].name, wide.outputs[0].name = f"{value.name}/narrow", f"{value.name}/wide"
        for node in (wide, narrow):
            first = next(iter(graph), None)
            graph.append(node) if first is None else graph.insert_before(first, node)
        for use in uses:
            use.node.replace_input_with(use.idx, wide.outputs[0])
        for number, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[number] = wide.outputs[0]
