"""Float32 in numpy for sizes that change from call to call: operators whose reference is a loop of Python or of many nodes.

They agree with the reference to a few units in the last place, as kernels do. Anything but float32 is left to the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
import math
from typing import Any

import numpy as np
import onnx
from onnx.helper import get_attribute_value

from anycann.graph.prepared import PreparedNode, without_warnings
from anycann.support.errors import ModelError

# erf(x) = x P(x^2) / Q(x^2) for |x| <= 4, beyond which it is 1 in float32: the approximation that Eigen has, highest power first.
_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04)
_MORE_P = (-2.95459980854025e-03, -1.60960333262415e-02)
_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)

Meaning = Callable[..., Any]


class QuickNode:
    """As `PreparedNode`, by a meaning of this file where all operands are of float32."""

    def __init__(self, node: onnx.NodeProto, prepared: PreparedNode):
        self._prepared, self._op_type = prepared, node.op_type
        self._run = without_warnings(partial(_MEANINGS[node.op_type], {item.name: get_attribute_value(item) for item in node.attribute}))

    def __call__(self, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        """One value for each output. Raises ModelError for operands whose sizes do not fit."""
        arrays = [value for value in inputs if isinstance(value, np.ndarray) and value.dtype == np.float32]
        if len(arrays) != len(inputs):
            return self._prepared(inputs, captures)
        try:
            return (self._run(*arrays),)
        except ValueError as error:
            raise ModelError(f"{self._op_type} of operands that do not fit: {error}") from error


def quick_node(node: onnx.NodeProto, opset: int) -> PreparedNode | QuickNode:
    """A node ready to run on arrays of any sizes."""
    prepared = PreparedNode(node, opset)
    return QuickNode(node, prepared) if node.domain == "" and node.op_type in _MEANINGS and len(node.output) == 1 else prepared


def _polynomial(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += np.float32(coefficient)
    return total


def erf(_: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """The error function."""
    near: np.ndarray = np.clip(x, np.float32(-4), np.float32(4))
    square = near * near
    near *= _polynomial(square, _P + _MORE_P)
    near /= _polynomial(square, _Q)
    return near


def gelu(attributes: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """x times the normal distribution's share below x, exact or by tanh."""
    share: np.ndarray
    if attributes.get("approximate", b"none") == b"tanh":
        inner = (x * x * np.float32(0.044715) + np.float32(1)) * x * np.float32(math.sqrt(2 / math.pi))
        share = np.tanh(inner)
    else:
        share = erf({}, x * np.float32(math.sqrt(0.5)))
    share += np.float32(1)
    share *= x * np.float32(0.5)
    return share


def layer_normalization(attributes: Mapping[str, Any], x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Mean 0 and variance 1 over the axes from `axis` on, then scale and bias."""
    if x.size == 0:
        return x.copy()
    first = int(attributes.get("axis", -1))
    axes = tuple(range(first % x.ndim, x.ndim))
    centred: np.ndarray = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    centred *= 1 / np.sqrt(variance + np.float32(attributes.get("epsilon", 1e-5)))
    centred *= scale
    if bias is not None:
        centred += bias
    return centred


_MEANINGS: dict[str, Meaning] = {"Erf": erf, "Gelu": gelu, "LayerNormalization": layer_normalization}
