"""Small models in files, for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

TINY = """
<ir_version: 9, opset_import: ["" : 18]>
net (float[N,3,H,W] x, float[3] scale) => (float[N,3,H,W] y, int64[K] found)
{
    [reshape_size] size = Constant<value_ints = [3, 1, 1]>()
    [reshape] column = Reshape(scale, size)
    [scaled] t = Mul(x, column)
    [activation] y = Relu(t)
    [flat] f = Flatten<axis = 0>(y)
    [where] w = NonZero(f)
    [axis] minus_one = Constant<value_ints = [-1]>()
    [found_flat] found = Reshape(w, minus_one)
}
"""
ADD = """
<ir_version: 9, opset_import: ["" : 18]>
add (float[N,4] a, float[N,4] b) => (float[N,4] y)
{
    [sum] s = Add(a, b)
    [activation] y = Relu(s)
}
"""
UNKNOWN = """
<ir_version: 9, opset_import: ["" : 18, "nowhere" : 1]>
odd (float[2] a) => (float[2] y)
{
    [strange] y = nowhere.Frobnicate(a)
}
"""


def save_model(text: str, path: Path) -> Path:
    """The model in `text` as a file."""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def matmul_model(path: Path, rows: int = 8, columns: int = 5) -> Path:
    """y = x @ w with a weight, for batches of any size."""
    weight = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        product (float[N,{rows}] x) => (float[N,{columns}] y) {{ [product] y = MatMul(x, w) }}"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, path)
    return path
