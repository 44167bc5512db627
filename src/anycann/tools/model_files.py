"""Opening the two kinds of model files for the commands that look at them, and writing a graph for Netron."""

from __future__ import annotations

from collections.abc import Mapping
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.load import load_model
from anycann.graph.registry import TensorType
from anycann.om.model import OfflineModel
from anycann.om.plan import TensorSpec
from anycann.om.reader import is_offline_model, read_offline_model
from anycann.om.weights import load_graph as load_stored_graph
from anycann.passes.pipeline import run_passes
from anycann.support.errors import UsageError, context
from anycann.support.files import file_error, write_whole
from anycann.te.dtypes import BY_NAME
from anycann.tools.atc_shapes import Shape
from anycann.tools.model_info import ModelInfo, model_info
from anycann.tools.output import progress

EMBEDDED_BYTES = 1 << 30  # weights above this go into a file of their own: protobuf ends at 2 GiB


def holds_offline_model(path: str) -> bool:
    """True if the file begins as an .om does, whatever its name is. Raises UsageError or DeviceError if it can not be read."""
    try:
        with open(path, "rb") as file:
            return is_offline_model(file.read(16))
    except OSError as error:
        raise file_error(path, "read", error) from error


def open_info(path: str, shapes: Mapping[str, Shape], quiet: bool) -> ModelInfo:
    """The numbers of an offline model, or of an ONNX model that is compiled for them in memory, for `shapes` where it leaves sizes open.

    `quiet`: no progress bar.
    """
    if holds_offline_model(path) or path.endswith(".om"):
        return model_info(load_offline_model(path))
    from anycann.compiler import CompileOptions, compile_model

    with progress("compiling kernels", enabled=not quiet) as report:
        return model_info(compile_model(path, CompileOptions(name=Path(path).stem, input_shapes=shapes), report))


def load_offline_model(path: str) -> OfflineModel:
    """The offline model at `path`. Raises UsageError where it is an ONNX file, ModelError where it is damaged."""
    if path.endswith(".onnx") and not holds_offline_model(path):
        raise UsageError(f"{path} is no offline model; make one of it with atc")
    with context(f"while reading {path}"):
        return read_offline_model(path)


def load_graph(path: str) -> ir.Model:
    """The graph of an .onnx or .om file; weights stay where they are."""
    if not holds_offline_model(path) and not path.endswith(".om"):
        return load_model(path)
    return stored_graph(load_offline_model(path), path)


def stored_graph(model: OfflineModel, source: str) -> ir.Model:
    """The graph that an offline model keeps. Raises ModelError beginning with `source` if it is damaged."""
    constants = model.constants
    assert isinstance(constants, np.ndarray), "a model that was read or compiled has its constants in one piece"
    return load_stored_graph(model.graph, constants, source)


def optimised_graph(graph: ir.Model, inputs: tuple[TensorSpec, ...]) -> ir.Model:
    """The GE graph: a copy of `graph` after all passes, for inputs of concrete shapes."""
    made = graph.clone()
    types: Mapping[str, TensorType | None] = {spec.name: _type_of(spec) for spec in inputs}
    run_passes(made, types)
    return made


def _type_of(spec: TensorSpec) -> TensorType | None:
    sizes = tuple(size for size in spec.shape if isinstance(size, int))
    return TensorType(BY_NAME[spec.dtype], sizes) if spec.dtype in BY_NAME and len(sizes) == len(spec.shape) else None


def write_graph(graph: ir.Model, path: str) -> str:
    """Write an ONNX file, with weights inside, or beside it in `<path>.data` where they are large; answers what was written.

    Raises UsageError or DeviceError if that fails.
    """
    nbytes = sum(value.const_value.nbytes for value in graph.graph.initializers.values() if value.const_value is not None)
    with context(f"while writing {path}"):
        if nbytes <= EMBEDDED_BYTES:
            write_whole(path, ir.to_proto(graph).SerializeToString())
            return path
        try:
            ir.save(graph, path, external_data=f"{Path(path).name}.data")
        except OSError as error:
            raise file_error(path, "write", error) from error
        return f"{path} and {os.path.basename(path)}.data"
