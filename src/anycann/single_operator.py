"""One operator of Ascend, by its name, operands and attributes, to an offline model: the core of `atc --singleop` and of acl.op."""

from __future__ import annotations

import dataclasses

from anycann.compiler import CompileOptions, compile_model
from anycann.frontends.ascend_ops.graph import completed, inferred_shapes, operator_graph
from anycann.om.model import OfflineModel
from anycann.om.operator_spec import METADATA_KEY, OperatorSpec, to_json

__all__ = ["compile_operator", "completed", "inferred_shapes", "operator_model"]


def compile_operator(spec: OperatorSpec, options: CompileOptions | None = None) -> OfflineModel:
    """An offline model of `spec`, whose metadata say so. Raises OperatorError, UnsupportedError."""
    options = dataclasses.replace(options or CompileOptions(), name=spec.op)
    model = compile_model(operator_graph(spec), options)
    return dataclasses.replace(model, metadata={**model.metadata, METADATA_KEY: to_json(completed(spec))})


def operator_model(spec: OperatorSpec) -> bytes:
    """The ONNX model of `spec`, serialised: what a process runs that has no offline model for it. Raises OperatorError."""
    return bytes(operator_graph(spec).SerializeToString())
