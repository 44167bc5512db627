"""Products that a model allows to round their rows: how far they are from those of floats, and that the switch leaves it out."""

import numpy as np
import onnx
from onnx import helper, numpy_helper
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen.kernels.byte_product_quads import multiplies_quads
from anycann.codegen.space import ROUNDED
from anycann.target.target import processor

EXACT = SessionOptions(switched_off=frozenset({ROUNDED}))
DEPTH, COLUMNS, BLOCK = 200, 70, 32


def model_of(bits: int, level: int, rows: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """A product with random weights of so many bits, and these as floats."""
    random, blocks = np.random.default_rng(), -(-DEPTH // BLOCK)
    numbers = random.integers(0, 1 << bits, (COLUMNS, blocks * BLOCK), np.uint8)
    packed = numbers if bits == 8 else numbers[:, ::2] | numbers[:, 1::2] << 4
    scales = random.uniform(0.01, 0.1, (COLUMNS, blocks)).astype(np.float32)
    constants = {"w": packed.reshape(COLUMNS, blocks, -1), "s": scales.reshape(-1), "b": random.standard_normal(COLUMNS).astype(np.float32)}
    sizes = {"K": DEPTH, "N": COLUMNS, "bits": bits, "block_size": BLOCK, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "w", "s", "", "", "b"], ["y"], domain="com.microsoft", **sizes)  # type: ignore[arg-type]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows, DEPTH])
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "product", [x], [onnx.ValueInfoProto(name="y")], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    floats = (numbers.astype(np.float64) - (1 << bits - 1)) * np.repeat(scales, BLOCK, axis=1)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), np.vstack([floats[:, :DEPTH].T, constants["b"]])


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 5, 90])
def test_rows_are_rounded_where_the_model_allows_it_and_nobody_forbids_it(bits: int, rows: int) -> None:
    x = np.random.default_rng().standard_normal((rows, DEPTH)).astype(np.float32)
    for level in (0, 4):
        model, weights = model_of(bits, level, rows)
        want = np.hstack([x, np.ones((rows, 1))]) @ weights
        rounded, exact = (error(InferenceSession(model, options).run(None, {"x": x})[0], want) for options in (None, EXACT))
        assert exact < 1e-6
        if level == 4 and multiplies_quads(processor()):
            assert 1e-4 < rounded < 1e-2
        else:
            assert rounded < 1e-6
