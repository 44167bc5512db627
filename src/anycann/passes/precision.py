"""Precision modes: which dtype values are kept in.

A 16-bit mode rounds every float32 value that a kernel stores to the 16-bit type, weights and inputs included, while sums are float32:
what a program computed on the chip would see. The storage stays four bytes wide, so kernels keep their speed; but where the processor
multiplies bfloat16, kernels hand each other bfloat16 (passes/narrow.py), and what is not narrow is not rounded, nor biases and scales.
"""

from __future__ import annotations

import onnx_ir as ir

from anycann.support.errors import UsageError
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


def round_inputs(graph: ir.Graph, storage: DType) -> None:
    """x -> Cast(Cast(x, storage), float32), for each float32 input x."""
    to_storage = ir.DataType.FLOAT16 if storage is dtypes.float16 else ir.DataType.BFLOAT16
    for value in list(graph.inputs):
        if value.dtype != ir.DataType.FLOAT:
            continue
        uses = list(value.uses())
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
