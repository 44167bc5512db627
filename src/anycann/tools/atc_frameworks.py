"""`--framework`: which front end reads the original model, and what its options mean there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from anycann.frontends.onnx.load import load_model
from anycann.tools.atc_request import TENSORFLOW, ConvertRequest
from anycann.tools.atc_shapes import Shape
from anycann.tools.atc_values import OutNodes


def load_original(path: str, framework: str, shapes: Mapping[str, Shape] | None = None, outputs: Sequence[str] = ()) -> ir.Model:
    """The model of a framework. TensorFlow's graphs need the wanted shapes and outputs while they are read; for ONNX they are ignored.

    Raises ModelError, UnsupportedError, UsageError.
    """
    if framework != TENSORFLOW:
        return load_model(path)
    from anycann.frontends.tensorflow.load import load_frozen_graph

    return load_frozen_graph(path, {name: _open_sizes(shape) for name, shape in (shapes or {}).items()}, outputs)


def load_requested(request: ConvertRequest) -> tuple[ir.Model, ConvertRequest]:
    """The model of a request, and what is left of the request for any framework's graph."""
    if request.framework != TENSORFLOW:
        return load_model(request.model), request
    wanted = request.out_nodes
    outputs = [*(f"{item.node}:{item.index}" for item in wanted.nodes), *wanted.tensors]
    return load_original(request.model, TENSORFLOW, request.shapes, outputs), replace(request, out_nodes=OutNodes())


def _open_sizes(shape: Shape) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) and size >= 0 else None for size in shape)
