"""A transposed convolution of few channels whose windows do not meet is one product a pixel, moved into place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, typed_node

MOST_OUTPUTS = 4  # more channels fill the lanes of each window's place by themselves, and need no second pass over memory


class SeparateWindows(Rule):
    """ConvTranspose<kernel = strides>(x, w, b) -> DepthToSpace(Conv(x, w as 1x1, b)).

    The kernel of a transposed convolution has output channels in its lanes: with one channel, the last layer of a segmentation, 15 of 16
    lanes compute nothing. The places of a window are channels too.
    """

    anchors = frozenset({("", "ConvTranspose")})

    def check(self, node: ir.Node) -> str | None:
        weights, source, result = constant_of(node.inputs[1]), static_type(node.inputs[0]), static_type(node.outputs[0])
        if weights is None or source is None or result is None or weights.ndim != 4 or weights.shape[1] > MOST_OUTPUTS:
            return ""
        kernel = list(weights.shape[2:])
        if kernel[0] != kernel[1] or kernel[0] == 1 or list(node.attributes.get_ints("strides", (1, 1))) != kernel:
            return "its windows meet, or are not square"
        if node.attributes.get_int("group", 1) != 1 or any(one != 1 for one in node.attributes.get_ints("dilations", (1, 1))):
            return "it has groups or dilations"
        if [*result.shape[2:]] != [size * kernel[0] for size in source.shape[2:]] or any(node.attributes.get_ints("pads", (0,))):
            return "it has padding"
        return None if len(node.inputs) < 3 or node.inputs[2] is None or constant_of(node.inputs[2]) is not None else "its bias is computed"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        weights, source, x = constant_of(node.inputs[1]), static_type(node.inputs[0]), node.inputs[0]
        assert weights is not None
        assert source is not None
        assert x is not None
        inputs, outputs, size, _ = weights.shape
        rows = weights.reshape(inputs, outputs * size * size).T.reshape(-1, inputs, 1, 1)
        operands = [x, new_constant(graph, f"{node.name}/places", rows)]
        if len(node.inputs) > 2 and (bias := constant_of(node.inputs[2])) is not None:
            operands.append(new_constant(graph, f"{node.name}/bias", np.repeat(bias, size * size)))
        shape = [source.shape[0], len(rows), *source.shape[2:]]
        product = typed_node("Conv", operands, f"{node.name}/product", x, shape)
        attributes = [ir.AttrInt64("blocksize", size), ir.AttrString("mode", "CRD")]
        return [product, ir.Node("", "DepthToSpace", [product.outputs[0]], attributes, name=node.name)]
