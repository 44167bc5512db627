"""One operator of Ascend, by its name, operands and attributes, to an offline model: the core of `atc --singleop` and of acl.op."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from anycann.compiler import CompileOptions, compile_model
from anycann.frontends.ascend_ops.graph import completed, inferred_shapes, operator_graph
from anycann.frontends.onnx.load import load_model
from anycann.om.model import OfflineModel
from anycann.om.operator_spec import METADATA_KEY, OperatorSpec, to_json

__all__ = ["compile_operator", "completed", "inferred_shapes", "operator_model", "operator_notes", "operator_source"]


def compile_operator(spec: OperatorSpec, options: CompileOptions | None = None) -> OfflineModel:
    """An offline model of `spec`, whose metadata say so. Raises OperatorError, UnsupportedError."""
    options = dataclasses.replace(options or CompileOptions(), name=spec.op, notes=operator_notes(spec))
    return compile_model(operator_source(spec), options)


def operator_source(spec: OperatorSpec) -> ir.Model:
    """The graph of `spec`, loaded: what is compiled. Raises OperatorError."""
    return load_model(operator_graph(spec))


def operator_notes(spec: OperatorSpec) -> dict[str, object]:
    """What the metadata of its offline model say of `spec`, by which acl.op finds it."""
    return {METADATA_KEY: to_json(completed(spec))}


def operator_model(spec: OperatorSpec) -> bytes:
    """The ONNX model of `spec`, serialised: what a process runs that has no offline model for it. Raises OperatorError."""
    return bytes(operator_graph(spec).SerializeToString())
