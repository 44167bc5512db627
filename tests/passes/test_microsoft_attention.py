"""Attention of ONNX Runtime's domain as native code, with ONNX Runtime's numbers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
import onnxruntime
import pytest

from tests.passes.graphs import assert_same, compile_graph, floats, run, tasks

KEYS = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)
QKV = (floats(2, 3, 32), floats(2, 5, 32, seed=1), floats(2, 5, 32, seed=2))
PACKED = (floats(2, 5, 24), floats(24, 96, seed=1), floats(96, seed=2))
PAST = (floats(2, 4, 6, 8, seed=5), floats(2, 4, 6, 8, seed=6))
HEADS = {"num_heads": 4}
CASES = {
    "heads": ("MultiHeadAttention", QKV, HEADS, 1),
    "heads with bias": ("MultiHeadAttention", (*QKV, floats(96)), HEADS, 1),
    "heads with a mask of keys": ("MultiHeadAttention", (*QKV, None, KEYS), {**HEADS, "scale": 0.3}, 1),
    "heads with both masks": ("MultiHeadAttention", (*QKV, None, KEYS, floats(1, 4, 3, 5)), HEADS, 1),
    "heads with a cache": ("MultiHeadAttention", (*(floats(2, 3, 32, seed=n) for n in range(3)), None, None, None, *PAST), HEADS, 3),
    "packed": ("Attention", PACKED, HEADS, 1),
    "packed with a mask of keys": ("Attention", (*PACKED, KEYS), HEADS, 1),
    "packed and causal": ("Attention", PACKED, {**HEADS, "unidirectional": 1}, 1),
    "packed with another mask": ("Attention", (*PACKED, None, None, floats(2, 4, 5, 5)), HEADS, 1),
}


def model(op_type: str, operands: tuple[np.ndarray | None, ...], attributes: dict[str, object], outputs: int) -> onnx.ModelProto:
    """Bias and weights (operands 1 to 3 of one or two axes) are constant."""
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(operands)]
    constant = {f"x{n}": a for n, a in enumerate(operands) if a is not None and n in (1, 2, 3) and a.ndim < 3 and a.dtype == np.float32}
    kinds = {f"x{n}": a for n, a in enumerate(operands) if a is not None and f"x{n}" not in constant}
    node = helper.make_node(op_type, names, [f"y{n}" for n in range(outputs)], "attention", domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in kinds.items()],
        [helper.make_tensor_value_info(f"y{n}", 1, None) for n in range(outputs)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constant.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


@pytest.mark.parametrize("case", CASES)
def test_attention_of_onnx_runtime_is_native(case: str) -> None:
    op_type, operands, attributes, outputs = CASES[case]
    made = model(op_type, operands, attributes, outputs)
    feeds = {i.name: operands[int(i.name[1:])] for i in made.graph.input}
    compiled = compile_graph(made)
    assert ("Attention",) in [task.op_types for task in tasks(compiled.program)]
    assert not any(node.engine == "AiCpu" for node in compiled.nodes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    want = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert_same(run(made, feeds), want)
