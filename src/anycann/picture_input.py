"""Dynamic AIPP: the way of a picture into an input, compiled when a program sets it, by the nodes that static AIPP puts into a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from anycann.frontends.aipp.configuration import Aipp, check_block
from anycann.frontends.aipp.graph import AXES, insert_aipp, source_shape
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.plan import TensorSpec
from anycann.runtime.executor import CompiledProgram

__all__ = ["AXES", "Aipp", "PictureInput", "check_block", "picture_input"]


@dataclass(frozen=True)
class PictureInput:
    """What makes one picture (uint8 of `shape`) part of a batch of an input."""

    shape: tuple[int, ...]
    nbytes: int
    program: CompiledProgram = field(repr=False)

    def convert(self, picture: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """uint8[nbytes] -> one item of the batch, in the input's layout and dtype; written to `item` if that is given."""
        (made,) = self.program.run([picture.reshape(self.shape)], [item])
        return np.asarray(made)


@lru_cache(maxsize=64)
def picture_input(block: Aipp, sizes: tuple[int, int, int], input_format: str, dtype: str, num_threads: int = 0) -> PictureInput:
    """Compile the settings for an input of `sizes` (channels, height, width). Raises UsageError for what does not fit."""
    import onnx_ir as ir

    channels, height, width = sizes
    by_axis = dict(zip(AXES[input_format], (1, channels, height, width), strict=True))
    type_ = ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype)))
    value = ir.Value(name="picture", type=type_, shape=ir.Shape([by_axis[axis] for axis in range(4)]))
    node = ir.Node("", "Identity", [value], name="input")
    node.outputs[0].name, node.outputs[0].type = "made", type_
    graph = ir.Graph([value], list(node.outputs), nodes=[node], opset_imports={"": 26}, name="aipp")
    (source,) = insert_aipp(graph, [block], input_format)
    shape = tuple(int(size or 0) for size in source_shape(block, 1, source.rows, source.columns))
    programs = ModelPrograms(ir.Model(graph, ir_version=10), SessionOptions(), num_threads)
    spec: Any = TensorSpec("picture", "uint8", shape)
    return PictureInput(shape, int(np.prod(shape)), programs.find([spec]).executable)
