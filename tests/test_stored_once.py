"""A weight is in the offline model once, as its kernel reads it, and the model can still be compiled again for any processor."""

import io

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.compiler import CompileOptions, convert_model
from anycann.om.reader import read_offline_model
from anycann.om.weights import load_graph
from anycann.om.writer import write_offline_model
from anycann.target.target import by_name

RNG = np.random.default_rng(3)
WEIGHTS = {
    "wide": RNG.standard_normal((70, 32, 1, 1)).astype(np.float32),
    "grouped": RNG.standard_normal((70, 7, 3, 3)).astype(np.float32),
    "matrix": RNG.standard_normal((70 * 36, 41)).astype(np.float32),
    "turned": RNG.standard_normal((33, 41)).astype(np.float32),
}


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "wide"], ["a"], name="first"),
        helper.make_node("Conv", ["a", "grouped"], ["b"], name="second", group=10, pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["b"], ["c"], name="flat"),
        helper.make_node("Gemm", ["c", "matrix"], ["d"], name="third"),
        helper.make_node("Gemm", ["d", "turned"], ["y"], name="fourth", transB=1),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 33])
    graph = helper.make_graph(nodes, "network", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def file_of(**options: object) -> bytes:
    file = io.BytesIO()
    write_offline_model(file, convert_model(network(), CompileOptions(**options)).model)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("target", ["avx512", "avx2", "sse"])
def test_every_weight_is_read_back_from_what_its_kernel_reads(target):
    offline = read_offline_model(file_of(target=by_name(target)))
    loaded = load_graph(offline.graph, np.asarray(offline.constants), "the model")
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(loaded.graph.initializers[name].const_value.numpy(), array)
    assert np.asarray(offline.constants).nbytes < 1.3 * sum(array.nbytes for array in WEIGHTS.values())  # channels are padded to lanes


def test_the_file_runs_as_it_is_and_compiled_again():
    data, x = file_of(target=by_name("avx2")), RNG.standard_normal((1, 32, 6, 6)).astype(np.float32)
    (expected,) = InferenceSession(network()).run(None, {"x": x})
    for target in ("avx2", "sse"):
        (found,) = InferenceSession(data, SessionOptions(target=by_name(target))).run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_weights_that_a_precision_mode_rounds_are_kept_as_they_were():
    offline = read_offline_model(file_of(precision_mode="force_fp16"))
    loaded = load_graph(offline.graph, np.asarray(offline.constants), "the model")
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(loaded.graph.initializers[name].const_value.numpy(), array)
