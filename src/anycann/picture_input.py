"""Dynamic AIPP: the settings of a program as its operator reads them, and the operator alone, in front of a model of open sizes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from anycann.frontends.aipp.configuration import Aipp
from anycann.frontends.aipp.graph import AXES, insert_dynamic_aipp
from anycann.frontends.aipp.table import picture_table
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.plan import TensorSpec
from anycann.runtime.executor import CompiledProgram
from anycann.te.picture_table import WORDS

__all__ = ["AXES", "Aipp", "convert_pictures", "picture_table"]


def convert_pictures(
    pictures: np.ndarray, table: np.ndarray, result: np.ndarray, input_format: str = "NCHW", num_threads: int = 0
) -> np.ndarray:
    """Make `result`, the input of a model, of the bytes of pictures by what `picture_table` says of each; answers with it."""
    program = _program(result.shape, result.dtype.name, pictures.nbytes, input_format, num_threads)
    program.run([pictures.reshape(-1).view(np.uint8), table], [result])
    return result


@lru_cache(maxsize=64)
def _program(shape: tuple[int, ...], dtype: str, nbytes: int, input_format: str, num_threads: int) -> CompiledProgram:
    """The operator alone."""
    import onnx_ir as ir

    type_ = ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype)))
    value = ir.Value(name="pictures", type=type_, shape=ir.Shape(shape))
    node = ir.Node("", "Identity", [value], name="input")
    node.outputs[0].name, node.outputs[0].type = "made", type_
    graph = ir.Graph([value], list(node.outputs), nodes=[node], opset_imports={"": 26}, name="aipp")
    insert_dynamic_aipp(graph, value, "table", nbytes, input_format)
    batch = shape[AXES[input_format][0]]
    specs = [TensorSpec("pictures", "uint8", (nbytes,)), TensorSpec("table", "int32", (batch, WORDS))]
    return ModelPrograms(ir.Model(graph, ir_version=10), SessionOptions(), num_threads).find(specs).executable
