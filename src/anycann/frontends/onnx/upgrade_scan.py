"""Upgrade rule of Scan, whose opset-8 form runs over a batch."""

from __future__ import annotations

import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.graph.sources import describe, inherit_sources
from anycann.support.errors import UnsupportedError


def scan_over_batch(edit: Edit) -> None:
    """Scan-8(, states..., sequences...) -> Scan(states..., sequences...) over the batch, whose body is Scan over the sequence.

    Both are of opset 9: the outer one has no state and slices axis 0 (the batch) of everything; `directions` goes to the inner one.
    """
    if edit.input(0) is not None:
        raise UnsupportedError(f"{describe(edit.node)}: sequence_lens of opset 8 is not implemented; sequences of full length are accepted")
    values = list(edit.node.inputs)[1:]
    inner_inputs = [_slice_of(value, f"{edit.node.name}/slice_{number}") for number, value in enumerate(values)]
    inner = ir.Node("", "Scan", inner_inputs, list(edit.node.attributes.values()), num_outputs=len(edit.node.outputs))
    for number, output in enumerate(inner.outputs):
        output.name = f"{edit.node.name}/result_{number}"
    directions = inner.attributes.pop("directions", None)
    if directions is not None:
        inner.attributes["scan_input_directions"] = ir.AttrInt64s("scan_input_directions", directions.as_ints())
    inherit_sources([inner], [edit.node])
    body = ir.Graph(inner_inputs, inner.outputs, nodes=[inner], name=f"{edit.node.name}/sample")
    edit.node.attributes.clear()
    edit.set_inputs(*values)
    edit.set("body", body)
    edit.set("num_scan_inputs", len(values))


def _slice_of(value: ir.Value | None, name: str) -> ir.Value:
    """An input of the outer body: one sample of `value`."""
    if value is None or value.shape is None:
        return ir.Value(name=name, type=None if value is None else value.type)
    return ir.Value(name=name, type=value.type, shape=ir.Shape(list(value.shape)[1:]))
