"""What rules about quantised graphs share: a DequantizeLinear and its known parameters."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.passes.rules.rule import constant_of
from anycann.support.records import dataclass

BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


@dataclass(frozen=True)
class Dequantised:
    """A value (`integers` - `zero`) * `scale`; both parameters are one for all, or one for each position of `axis`."""

    node: ir.Node
    integers: ir.Value
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @property
    def one_for_all(self) -> bool:
        return self.scale.size == 1

    @property
    def known(self) -> np.ndarray | None:
        """The integers if they are weights."""
        return constant_of(self.integers)

    @property
    def zero_value(self) -> ir.Value | None:
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None


def dequantised(value: ir.Value | None) -> Dequantised | None:
    """The DequantizeLinear that makes a value, if its parameters are known float32 scales of a tensor or an axis."""
    node = None if value is None else value.producer()
    if node is None or node.domain not in ("", "com.microsoft") or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return None
    scale, zero = constant_of(node.inputs[1]), _zero(node)
    if scale is None or zero is None or scale.dtype != np.float32 or scale.ndim > 1 or node.attributes.get_int("block_size", 0) != 0:
        return None
    return Dequantised(node, node.inputs[0], scale, zero, node.attributes.get_int("axis", 1))


def _zero(node: ir.Node) -> np.ndarray | None:
    """The zero point; an absent one is zero, of the type of the operand or, where that is not known yet, of ONNX's default."""
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return constant_of(node.inputs[2])
    source = node.inputs[0]
    return np.zeros((), source.dtype.numpy() if source is not None and source.dtype is not None else np.uint8)


def same_parameters(node: ir.Node, other: ir.Node) -> bool:
    """Whether a QuantizeLinear and a DequantizeLinear, or two of one kind, have one known scale and zero point."""
    scales, zeros = ([constant_of(n.inputs[i]) if i < len(n.inputs) else None for n in (node, other)] for i in (1, 2))
    if any(each is None or each.size != 1 for each in (*scales, *zeros)):
        return False
    return bool(scales[0] == scales[1]) and zeros[0].dtype == zeros[1].dtype and bool(zeros[0] == zeros[1])  # type: ignore[union-attr]
