"""Any ONNX file as a model to measure: free sizes are one, inputs are random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray
import onnx
from onnx.helper import tensor_dtype_to_np_dtype

from anycann.om.plan import TensorSpec
from anycann.tools import feeds


def random_feeds(path: Path) -> dict[str, NDArray[Any]]:
    """Every input of the ONNX file that has no initializer, as `tools.feeds.random_feeds` draws it; dimensions without a number are 1.

    Raises UsageError for an input that is no tensor of numbers.
    """
    graph = onnx.load(path, load_external_data=False).graph
    given = {tensor.name for tensor in graph.initializer}
    return feeds.random_feeds([_spec(value) for value in graph.input if value.name not in given], {})


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = tensor_dtype_to_np_dtype(kind.elem_type).name if kind.elem_type else value.type.WhichOneof("value") or "nothing"
    return TensorSpec(value.name, dtype, tuple(size.dim_value or 1 for size in kind.shape.dim))
