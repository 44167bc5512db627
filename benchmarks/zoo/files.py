"""Any ONNX file as a model to measure: free sizes are one, inputs are random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
import onnx
from onnx.helper import tensor_dtype_to_np_dtype

SEED = 20260101


def random_feeds(path: Path) -> dict[str, NDArray[Any]]:
    """Every input of the ONNX file that has no initializer; dimensions without a number are 1.

    Floats are standard normal. Integers are 0 or 1, which is right for masks, kinds of words and the words of every vocabulary.
    Raises ValueError for an input that is no tensor of numbers.
    """
    graph = onnx.load(path, load_external_data=False).graph
    given, rng = {tensor.name for tensor in graph.initializer}, np.random.default_rng(SEED)
    return {value.name: _random(value, path, rng) for value in graph.input if value.name not in given}


def _random(value: onnx.ValueInfoProto, path: Path, rng: np.random.Generator) -> NDArray[Any]:
    kind = value.type.tensor_type.elem_type
    if kind in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        raise ValueError(f"input {value.name!r} of {path} is no tensor of numbers; only those can be drawn by chance")
    dtype = tensor_dtype_to_np_dtype(kind)
    shape = [dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim]
    whole = dtype.kind in "biu"
    return (rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)).astype(dtype)
