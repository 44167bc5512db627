"""Convolutions whose weights are computed, and the gradients of convolutions: whole models on every target, against float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionAlgorithm
from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET
from anycann.target.target import by_name
from tests.codegen.kernels.jit import distinct_names

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """Sizes of a convolution of two spatial dimensions, or of as many as `size` has."""

    batch: int
    inputs: int
    size: tuple[int, ...]
    outputs: int
    kernel: tuple[int, ...]
    strides: int = 1
    pad: int = 0
    dilations: int = 1
    group: int = 1

    @property
    def attributes(self) -> dict[str, Any]:
        rank = len(self.size)
        return {
            "strides": [self.strides] * rank,
            "pads": [self.pad] * 2 * rank,
            "dilations": [self.dilations] * rank,
            "group": self.group,
        }

    @property
    def out_size(self) -> tuple[int, ...]:
        spans = (self.dilations * (k - 1) + 1 for k in self.kernel)
        return tuple((n + 2 * self.pad - span) // self.strides + 1 for n, span in zip(self.size, spans, strict=True))

    def operands(self, rng: np.random.Generator) -> dict[str, Array]:
        shapes = {
            "x": (self.batch, self.inputs, *self.size),
            "w": (self.outputs, self.inputs // self.group, *self.kernel),
            "dy": (self.batch, self.outputs, *self.out_size),
        }
        return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


PROBLEMS = (
    Problem(2, 3, (9, 8), 20, (3, 3), pad=1),
    Problem(4, 32, (9, 10), 48, (3, 3), pad=1),  # Winograd
    Problem(2, 17, (9, 8), 19, (3, 3), pad=1),
    Problem(2, 20, (5, 7), 6, (1, 1), strides=2),
    Problem(2, 20, (9, 2), 18, (1, 1), strides=2),  # one column
    Problem(2, 5, (3, 9, 2), 18, (1, 3, 1), strides=2),
    Problem(2, 32, (6, 6), 32, (1, 1)),
    Problem(2, 6, (8, 9), 8, (3, 2), pad=1, dilations=2, group=2),
    Problem(2, 20, (6, 7), 20, (3, 3), strides=2, pad=1, group=20),
    Problem(2, 32, (7, 7), 64, (3, 3), strides=2, pad=1, group=4),
    Problem(2, 39, (7, 6), 96, (3, 3), pad=1, group=3),
    Problem(5, 64, (2, 2), 40, (3, 3), pad=1),
    Problem(33, 24, (1, 1), 40, (3, 3), pad=1),
    Problem(2, 3, (21, 20), 24, (7, 7), strides=2, pad=3),
    Problem(2, 40, (6, 6), 1, (3, 3), pad=1),
    Problem(2, 5, (23,), 7, (4,), strides=3, pad=2),
    Problem(2, 3, (4, 5, 6), 18, (2, 3, 2), pad=1),
    Problem(1, 17, (4, 8, 9), 16, (3, 3, 3), pad=1),
    Problem(1, 40, (8, 8), 48, (3, 3), pad=1),  # more weights than the image and the result have pixels
)


def relative_error(op_type: str, domain: str, feeds: dict[str, Array], attributes: dict[str, Any], target: str) -> float:
    """The greatest difference between a model of one node and its reference in float64, over the greatest result."""
    node = onnx.helper.make_node(op_type, list(feeds), ["y"], "node", domain=domain, **attributes)
    dtype = onnx.helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype)
    inputs = [onnx.helper.make_tensor_value_info(name, dtype, array.shape) for name, array in feeds.items()]
    graph = onnx.helper.make_graph([node], "graph", inputs, [onnx.helper.make_tensor_value_info("y", dtype, None)])
    opsets = [onnx.helper.make_opsetid("", 22), onnx.helper.make_opsetid("anycann", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = InferenceSession(model, SessionOptions(target=by_name(target), poison=True), num_threads=2)
    assert [node.engine for node in session.engines()] == ["AiCore"]
    (got,) = session.run(None, feeds)
    (wanted,) = evaluate_node(node, OPSET, [array.astype(np.float64) for array in feeds.values()])
    assert isinstance(wanted, np.ndarray)
    assert got.shape == wanted.shape
    return float(np.abs(got.astype(np.float64) - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_weights_may_be_computed(problem: Problem, target: str) -> None:
    operands = problem.operands(np.random.default_rng())
    feeds = {"x": operands["x"], "w": operands["w"]}
    assert relative_error("Conv", "", feeds, problem.attributes, target) < 2e-5


@pytest.mark.parametrize("target", ["avx2", "sse"])
def test_winograd_takes_computed_weights_of_which_most_meet_only_padding(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSpace, "default", lambda space: ConvolutionAlgorithm(winograd=True))
    problem = Problem(2, 17, (39, 1), 19, (5, 5), pad=2)
    operands = problem.operands(np.random.default_rng())
    feeds = {"x": operands["x"], "w": operands["w"]}
    assert relative_error("Conv", "", feeds, problem.attributes, target) < 2e-5


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_gradient_of_the_input_is_a_convolution_of_the_gradient_of_the_result(problem: Problem, target: str) -> None:
    operands = problem.operands(np.random.default_rng())
    feeds = {"dy": operands["dy"], "w": operands["w"]}
    attributes = {**problem.attributes, "input_shape": list(operands["x"].shape)}
    assert relative_error("ConvInputGrad", "anycann", feeds, attributes, target) < 2e-5


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_gradient_of_the_weights_is_a_sum_over_pixels(problem: Problem, target: str) -> None:
    operands = problem.operands(np.random.default_rng())
    feeds = {"x": operands["x"], "dy": operands["dy"]}
    attributes = {**problem.attributes, "kernel_shape": list(problem.kernel)}
    assert relative_error("ConvWeightGrad", "anycann", feeds, attributes, target) < 2e-5


@pytest.mark.parametrize("target", ["host", "sse"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
@pytest.mark.parametrize("problem", PROBLEMS[2:4] + PROBLEMS[5:7], ids=str)
def test_halves_are_summed_in_single_precision(problem: Problem, dtype: type, tolerance: float, target: str) -> None:
    operands = {name: array.astype(dtype) for name, array in problem.operands(np.random.default_rng()).items()}
    cases = {
        "Conv": ("", ("x", "w"), {}),
        "ConvInputGrad": ("anycann", ("dy", "w"), {"input_shape": list(operands["x"].shape)}),
        "ConvWeightGrad": ("anycann", ("x", "dy"), {"kernel_shape": list(problem.kernel)}),
    }
    for op_type, (domain, names, more) in cases.items():
        feeds = {name: operands[name] for name in names}
        assert relative_error(op_type, domain, feeds, {**problem.attributes, **more}, target) < tolerance, op_type
