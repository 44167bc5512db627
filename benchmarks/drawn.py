"""A model of one operator with drawn sizes, for `benchmarks.tuning`, and how sizes are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 24, 10
_STEM_CHANNELS = 3
OPERATOR, BEFORE, AFTER = "operator", "before", "after"
# Work that takes from some microseconds to some ten milliseconds: operations of products, elements of all else
FLOPS, ELEMENTS = (2e5, 2e9), (2e3, 4e6)


@dataclass(frozen=True)
class Drawn:
    """An operator between Relus, as networks have it: what is before it decides how its input lies in memory.

    inputs: shapes of what is computed; weights: of what is constant, behind the inputs; values: constants that matter, behind those.
    image: it is read in blocks of channels. stem: a convolution makes the first input, which leaves it in blocks of channels.
    in_bytes: one input and one weight, quantised to 8 bits, and so is the result.
    """

    text: str
    op_type: str
    inputs: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[int, ...], ...] = ()
    values: tuple[np.ndarray | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    image: bool = False
    stem: bool = False
    in_bytes: bool = False

    def model(self) -> onnx.ModelProto:
        """Relu or a convolution, the operator, Relu of its result, and for an image what reads it in blocks of channels."""
        return self._of_bytes() if self.in_bytes else self._of_floats()

    def _of_floats(self) -> onnx.ModelProto:
        rng = np.random.default_rng(len(self.text))
        arrays = [rng.standard_normal(shape, np.float32) / 16 for shape in self.weights] + list(self.values)
        constants = {f"w{n}": array for n, array in enumerate(arrays) if array is not None}
        inputs, stem = list(self.inputs), helper.make_node("Relu", ["x0"], ["r0"], name=BEFORE)
        if self.stem:
            batch, channels, *size = inputs[0]
            inputs[0] = (batch, _STEM_CHANNELS, *size)
            constants["stem"] = rng.standard_normal((channels, _STEM_CHANNELS, *(1 for _ in size)), np.float32)
            stem = helper.make_node("Conv", ["x0", "stem"], ["r0"], name=BEFORE)
        names = [f"x{n}" for n in range(len(inputs))]
        operands = ["r0", *names[1:], *(f"w{n}" if array is not None else "" for n, array in enumerate(arrays))]
        nodes = [
            stem,
            helper.make_node(self.op_type, operands, ["t"], name=OPERATOR, **self.attributes),
            helper.make_node("Relu", ["t"], ["r"], name=AFTER),
            helper.make_node("GlobalAveragePool" if self.image else "Identity", ["r"], ["y"], name="end"),
        ]
        return self._made(nodes, inputs, constants)

    def _of_bytes(self) -> onnx.ModelProto:
        """x0 -> bytes -> the operator with bytes as weights -> Relu -> bytes -> y, of an image the means."""
        rng = np.random.default_rng(len(self.text))
        scale, zero = np.float32(0.02), np.uint8(128)
        constants: dict[str, np.ndarray] = {
            "w": rng.integers(-127, 128, self.weights[0]).astype(np.int8),
            "scale": np.array(scale),
            "zero": np.array(zero),
        }
        nodes = [
            helper.make_node("QuantizeLinear", ["x0", "scale", "zero"], ["q0"], name=BEFORE),
            helper.make_node("DequantizeLinear", ["q0", "scale", "zero"], ["r0"], name="input"),
            helper.make_node("DequantizeLinear", ["w", "scale"], ["w0"], name="weights"),
            helper.make_node(self.op_type, ["r0", "w0"], ["t"], name=OPERATOR, **self.attributes),
            helper.make_node("Relu", ["t"], ["r"], name=AFTER),
            helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["q"], name="stored"),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["s"], name="read"),
            helper.make_node("GlobalAveragePool" if self.image else "Identity", ["s"], ["y"], name="end"),
        ]
        return self._made(nodes, self.inputs, constants)

    def _made(
        self, nodes: Sequence[onnx.NodeProto], inputs: Sequence[tuple[int, ...]], constants: Mapping[str, np.ndarray]
    ) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info(f"x{n}", onnx.TensorProto.FLOAT, shape) for n, shape in enumerate(inputs)]
        weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, self.op_type, given, [onnx.ValueInfoProto(name="y")], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def channels(rng: random.Random, most: int = 512) -> int:
    """As networks have them, mostly multiples of 8, and some that are none or few."""
    return rng.choice((8 * rng.randint(1, most // 8), 8 * rng.randint(1, most // 8), rng.randint(1, most), rng.randint(1, 20)))


def extent(rng: random.Random, most: int = 112) -> int:
    """Of an image along an axis; one in six is 1 to 4."""
    return rng.choice((*(rng.randint(5, 40) for _ in range(3)), *(rng.randint(5, most) for _ in range(2)), rng.randint(1, 4)))


def by(sizes: Sequence[int]) -> str:
    """1x3x224x224"""
    return "x".join(map(str, sizes))
