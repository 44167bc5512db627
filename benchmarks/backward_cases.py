"""What training computes, one operator at a time: the node, its operands, and the same by PyTorch's own operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch

Array: TypeAlias = np.ndarray[Any, Any]
aten = torch.ops.aten


@dataclass(frozen=True)
class BackwardCase:
    """One node of our graph, and a call of PyTorch that gives the same results (the first `outputs` of them)."""

    name: str
    op_type: str
    operands: dict[str, torch.Tensor]
    theirs: Callable[[], Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = "anycann"
    outputs: int = 1

    def model(self) -> onnx.ModelProto:
        """The node alone; its results are y0, y1 ..."""
        names = [f"y{n}" for n in range(self.outputs)]
        node = onnx.helper.make_node(self.op_type, list(self.operands), names, self.name, domain=self.domain, **self.attributes)
        inputs = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds().items()
        ]
        results = [torch.as_tensor(value) for value in self.results()]
        types = [onnx.helper.np_dtype_to_tensor_dtype(value.numpy().dtype) for value in results]
        made = [onnx.helper.make_tensor_value_info(name, type_, None) for name, type_ in zip(names, types, strict=True)]
        opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("anycann", 1)]
        graph = onnx.helper.make_graph([node], "operator", inputs, made)
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self) -> dict[str, Array]:
        """The operands as arrays."""
        return {name: tensor.numpy() for name, tensor in self.operands.items()}

    def results(self) -> tuple[torch.Tensor, ...]:
        """PyTorch's results."""
        found = self.theirs()
        kept = [value for value in (found if isinstance(found, tuple) else (found,)) if value is not None]
        return tuple(kept[: self.outputs])


# batch, channels, size, output channels, kernel, stride, padding: ResNet-18 on 32 x 32, then larger images
_LAYERS = {
    "7x7 stem, 32 px": (64, 3, 32, 64, 7, 2, 3), "64, 8 px": (64, 64, 8, 64, 3, 1, 1), "64-128 stride 2": (64, 64, 8, 128, 3, 2, 1),
    "64-128 1x1 stride 2": (64, 64, 8, 128, 1, 2, 0), "128, 4 px": (64, 128, 4, 128, 3, 1, 1),
    "128-256 stride 2": (64, 128, 4, 256, 3, 2, 1),
    "256, 2 px": (64, 256, 2, 256, 3, 1, 1), "256-512 stride 2": (64, 256, 2, 512, 3, 2, 1), "512, 1 px": (64, 512, 1, 512, 3, 1, 1),
    "64, 56 px": (4, 64, 56, 64, 3, 1, 1), "256-64 1x1, 56 px": (4, 256, 56, 64, 1, 1, 0), "512, 7 px": (8, 512, 7, 512, 3, 1, 1),
}  # fmt: skip


def _convolutions() -> Iterator[BackwardCase]:
    for name, (batch, inputs, size, outputs, kernel, stride, pad) in _LAYERS.items():
        x, w = torch.randn(batch, inputs, size, size), torch.randn(outputs, inputs, kernel, kernel)
        dy = torch.randn_like(torch.conv2d(x, w, None, stride, pad))
        attributes = {"strides": [stride] * 2, "pads": [pad] * 4}

        forward = partial(torch.conv2d, x, w, None, stride, pad)
        backward = partial(aten.convolution_backward, dy, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1)
        yield BackwardCase(f"convolution {name}", "Conv", {"x": x, "w": w}, forward, attributes, "")
        to_input = {**attributes, "input_shape": list(x.shape)}
        yield BackwardCase(f"to input {name}", "ConvInputGrad", {"dy": dy, "w": w}, partial(backward, (True, False, False)), to_input)
        to_weights = {**attributes, "kernel_shape": [kernel] * 2}
        yield BackwardCase(f"to weights {name}", "ConvWeightGrad", {"x": x, "dy": dy}, partial(backward, (False, True, False)), to_weights)


def _products() -> Iterator[BackwardCase]:
    for m, k, n, a_turned, b_turned in (
        (1024, 256, 1024, 0, 1), (1024, 1024, 256, 0, 0), (1024, 1024, 256, 1, 0), (256, 1024, 1024, 1, 0), (64, 1000, 512, 0, 0),
        (3072, 512, 768, 1, 0),
    ):  # fmt: skip
        a = torch.randn(*((k, m) if a_turned else (m, k)))
        b = torch.randn(*((n, k) if b_turned else (k, n)))
        name = f"product {m} x {k} x {n}{', A transposed' if a_turned else ''}{', B transposed' if b_turned else ''}"

        theirs = partial(torch.mm, a.t() if a_turned else a, b.t() if b_turned else b)
        yield BackwardCase(name, "Gemm", {"a": a, "b": b}, theirs, {"transA": a_turned, "transB": b_turned}, "")


def _normalisations() -> Iterator[BackwardCase]:
    for shape in ((64, 64, 16, 16), (64, 256, 2, 2)):
        x, dy, scale = torch.randn(*shape), torch.randn(*shape), torch.rand(shape[1])
        _, mean, inverse = aten.native_batch_norm(x, scale, scale, None, None, True, 0.1, 1e-5)
        name = " x ".join(map(str, shape))
        yield BackwardCase(
            f"batch norm {name}", "BatchNormTraining", {"x": x, "scale": scale, "bias": scale},
            partial(aten.native_batch_norm, x, scale, scale, None, None, True, 0.1, 1e-5), outputs=3,
        )  # fmt: skip
        yield BackwardCase(
            f"batch norm backward {name}", "BatchNormGrad", {"dy": dy, "x": x, "scale": scale, "mean": mean, "inverse": inverse},
            partial(aten.native_batch_norm_backward, dy, x, scale, None, None, mean, inverse, True, 1e-5, [True] * 3),
            outputs=3,
        )  # fmt: skip
    x, dy, scale = torch.randn(1024, 256), torch.randn(1024, 256), torch.rand(256)
    _, mean, inverse = aten.native_layer_norm(x, [256], scale, None, 1e-5)
    yield BackwardCase(
        "layer norm backward 1024 x 256", "LayerNormGrad", {"dy": dy, "x": x, "mean": mean, "inverse": inverse, "scale": scale},
        lambda: aten.native_layer_norm_backward(dy, x, [256], mean, inverse, scale, scale, [True] * 3), outputs=3,
    )  # fmt: skip


def _others() -> Iterator[BackwardCase]:
    x, dy = torch.randn(1024, 1024), torch.randn(1024, 1024)
    yield BackwardCase("gelu backward", "GeluGrad", {"dy": dy, "x": x}, lambda: aten.gelu_backward(dy, x))
    yield BackwardCase("silu backward", "SiluGrad", {"dy": dy, "x": x}, lambda: aten.silu_backward(dy, x))
    yield BackwardCase("threshold backward", "ThresholdGrad", {"dy": dy, "x": x}, lambda: aten.threshold_backward(dy, x, 0))
    weights = torch.softmax(torch.randn(4096, 64), -1)
    slopes = torch.randn_like(weights)
    yield BackwardCase(
        "softmax backward", "SoftmaxGrad", {"dy": slopes, "y": weights},
        lambda: aten._softmax_backward_data(slopes, weights, -1, torch.float32), {"axis": -1},
    )  # fmt: skip
    image = torch.randn(64, 64, 16, 16)
    y, places = aten.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1])
    slope, window = torch.randn_like(y), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    yield BackwardCase(
        "max pool", "MaxPoolWithIndices", {"x": image},
        lambda: aten.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1]), window, outputs=2,
    )  # fmt: skip
    yield BackwardCase(
        "max pool backward", "MaxPoolGrad", {"dy": slope, "places": places},
        lambda: aten.max_pool2d_with_indices_backward(slope, image, [3, 3], [2, 2], [1, 1], [1, 1], False, places),
        {**window, "input_shape": list(image.shape)},
    )  # fmt: skip
    small, large = [4, 64, 32, 32], torch.randn(4, 64, 64, 64)
    rule = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    yield BackwardCase(
        "bilinear upsampling backward", "ResizeGrad", {"dy": large},
        lambda: aten.upsample_bilinear2d_backward(large, [64, 64], small, False), {**rule, "input_shape": small},
    )  # fmt: skip
    rows, numbers = torch.randn(2048, 256), torch.randint(0, 30522, (2048,))
    yield BackwardCase(
        "embedding backward", "EmbeddingGrad", {"dy": rows, "indices": numbers},
        lambda: aten.embedding_dense_backward(rows, numbers, 30522, -1, False), {"num_weights": 30522},
    )  # fmt: skip


def all_cases() -> Iterator[BackwardCase]:
    """Every case, its operands drawn anew."""
    torch.manual_seed(0)
    yield from _convolutions()
    yield from _products()
    yield from _normalisations()
    yield from _others()
