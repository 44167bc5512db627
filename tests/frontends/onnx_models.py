"""Small models for the tests of the front end, and two ways to run one: ONNX Runtime, and node by node on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
import onnx_ir as ir
import onnxruntime

from anycann.graph.evaluate import captured_names, evaluate_node
from anycann.graph.types import type_proto_of

MICROSOFT = "com.microsoft"


def make_model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, object],
    outputs: Sequence[str],
    opset: int = 26,
    constants: Mapping[str, np.ndarray] | None = None,
    ir_version: int = 10,
) -> onnx.ModelProto:
    """A model of `nodes` whose inputs have the types of `feeds`, and whose outputs have no type yet but what inference says."""
    infos = [helper.make_value_info(name, type_proto_of(value)) for name, value in feeds.items()]
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs], weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[Any]:
    """All outputs, by ONNX Runtime without its optimisations, one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def run_on_host(model: ir.Model, feeds: Mapping[str, object]) -> list[Any]:
    """All outputs of a model without functions, node by node through `evaluate_node`."""
    proto = ir.to_proto(model)
    values: dict[str, object] = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    values.update(feeds)
    opset = next(entry.version for entry in proto.opset_import if entry.domain == "")
    for node in proto.graph.node:
        captures = {name: values[name] for name in captured_names(node)}
        outputs = evaluate_node(node, opset, [values[name] if name else None for name in node.input], captures)
        values.update({name: value for name, value in zip(node.output, outputs, strict=True) if name})
    return [values[output.name] for output in proto.graph.output]


def assert_close(got: Sequence[Any], wanted: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The same number of outputs, types, shapes and, within the tolerance, values."""
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def varint(value: int) -> bytes:
    """A number in protobuf's wire format."""
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def delimited(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message in protobuf's wire format."""
    return varint(number << 3 | 2) + varint(len(content)) + content
