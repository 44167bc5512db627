"""Products of dequantised operands become products of the integers; what their scales do is left to the elementwise end of the kernel.

(a - za) sa * (b - zb) sb, summed  =  (sum of (a - za) (b - zb)) * sa sb: the integer sum is exact, and 8-bit products are several times as
fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.transposed_integers import TRANSPOSED_INTEGERS
from anycann.passes.rules.quantised import BYTES, Dequantised, dequantised
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node
from anycann.te.contractions import PLACE_CHANNELS

_INT32_MAX = (1 << 31) - 1


def _operands_problem(x: Dequantised | None, w: Dequantised | None, axis: int) -> str | None:
    """Why the product of these stays one of floats; "" where nothing is quantised."""
    if x is None or w is None:
        return "" if x is None and w is None else "only one operand is dequantised with known parameters"
    if x.zero.dtype not in BYTES or w.zero.dtype not in BYTES:
        return f"its operands are {x.zero.dtype} and {w.zero.dtype}; integer kernels take 8 bits"
    if w.known is None:
        return "the weights are computed at run time"
    if not x.one_for_all or x.zero.size != 1:
        return "the first operand has several scales"
    if not w.one_for_all and w.axis % w.known.ndim != axis:
        return f"the scales of the weights run along axis {w.axis}, not along the results"
    results = w.known.shape[axis] if axis < w.known.ndim else 1
    return _sums_problem(w.known.size // max(1, results), x, w)


def _sums_problem(depth: int, a: Dequantised, b: Dequantised) -> str | None:
    """Why sums of `depth` products are no int32, which floats would hold."""
    most = depth * _farthest(a) * _farthest(b)
    return f"sums of {depth} products may be {most}, more than int32 holds" if most > _INT32_MAX else None


def _farthest(operand: Dequantised) -> int:
    """How far from its zero point an integer may lie."""
    known, zero, limits = operand.known, operand.zero, np.iinfo(operand.zero.dtype)
    low, high = (limits.min, limits.max) if known is None or not known.size else (int(known.min()), int(known.max()))
    return max(high - int(zero.min()), int(zero.max()) - low)


def _constant_bias(value: ir.Value | None) -> np.ndarray | None:
    """A known bias, dequantised if need be."""
    found, quantised = constant_of(value), dequantised(value)
    if found is None and quantised is not None and quantised.known is not None:
        found = (quantised.known.astype(np.float32) - quantised.zero.astype(np.float32)) * quantised.scale
    return None if found is None else found.astype(np.float32)


def _bias_problem(node: ir.Node) -> str | None:
    """Why the bias of a node cannot be added as a constant, or None."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return "its bias is computed at run time" if bias is not None and _constant_bias(bias) is None else None


def _finish(graph: ir.Graph, node: ir.Node, product: ir.Node, factor: np.ndarray, bias: ir.Value | None) -> list[ir.Node]:
    """product -> Cast -> Mul(factor) -> Add(bias)."""
    name, like = node.name or node.op_type, node.outputs[0]
    cast = new_node("Cast", [product.outputs[0]], f"{name}/sums", like, {"to": int(ir.DataType.FLOAT)})
    scale = new_constant(graph, f"{name}/factor", factor.astype(np.float32))
    nodes = [product, cast, new_node("Mul", [cast.outputs[0], scale], f"{name}/scaled" if bias is not None else name, like)]
    if bias is not None:
        nodes.append(new_node("Add", [nodes[-1].outputs[0], bias], name, like))
    return nodes


def _known(node: ir.Node, number: int) -> Dequantised:
    found = dequantised(node.inputs[number])
    assert found is not None
    return found


def _integer_node(op_type: str, node: ir.Node, x: Dequantised, w: ir.Value, zero_w: ir.Value | None) -> ir.Node:
    operands = [x.integers, w, x.zero_value, zero_w] if zero_w is not None else [x.integers, w, x.zero_value]
    product = new_node(op_type, operands, f"{node.name}/integers", node.outputs[0])
    product.outputs[0].type = ir.TensorType(ir.DataType.INT32)
    return product


class IntegerConvolution(Rule):
    """Conv(DequantizeLinear(x), DequantizeLinear(w), b) -> Cast(ConvInteger(x, w)) * scales + b, with 8-bit x and constant w."""

    anchors = frozenset({("", "Conv")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        problem = _operands_problem(dequantised(node.inputs[0]), dequantised(node.inputs[1]), 0)
        return _bias_problem(node) if problem is None else problem

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, w = _known(node, 0), _known(node, 1)
        assert w.known is not None
        spread = (-1, *[1] * (w.known.ndim - 2))
        product = _integer_node("ConvInteger", node, x, w.integers, w.zero_value if w.zero.any() else None)
        for attribute in node.attributes.values():
            product.attributes.add(attribute)
        bias = _constant_bias(node.inputs[2]) if len(node.inputs) > 2 else None
        added = None if bias is None else new_constant(graph, f"{node.name}/bias", bias.reshape(spread))
        return _finish(graph, node, product, (x.scale * w.scale).reshape(spread), added)


class IntegerTransposedConvolution(Rule):
    """ConvTranspose(DequantizeLinear(x), DequantizeLinear(w), b) -> Cast(ConvTransposeInteger(x, w)) * scales + b, with known 8-bit w.

    Its sums over neighbouring pixels fill vectors with 16 channels at each place of a window.
    """

    anchors = frozenset({("", "ConvTranspose")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        w = dequantised(node.inputs[1])
        problem = _operands_problem(dequantised(node.inputs[0]), w, 1)
        problem = _bias_problem(node) if problem is None else problem
        if problem is not None:
            return problem
        assert w is not None
        return "its weights without their zero points are no bytes" if _signed(w) is None else _window_problem(node, w)

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x, w = _known(node, 0), _known(node, 1)
        signed = _signed(w)
        assert signed is not None
        spread = (-1, *[1] * (signed.ndim - 2))
        weights = w.integers if _is_signed(w) else new_constant(graph, f"{node.name}/centred", signed)
        product = _integer_node(TRANSPOSED_INTEGERS, node, x, weights, None)
        product.domain = DOMAIN
        for attribute in node.attributes.values():
            product.attributes.add(attribute)
        bias = _constant_bias(node.inputs[2]) if len(node.inputs) > 2 else None
        added = None if bias is None else new_constant(graph, f"{node.name}/bias", bias.reshape(spread))
        return _finish(graph, node, product, (x.scale * w.scale).reshape(spread), added)


def _is_signed(w: Dequantised) -> bool:
    """Whether weights are signed bytes without a zero point as they are stored."""
    return w.integers.dtype == ir.DataType.INT8 and not w.zero.any()


def _signed(w: Dequantised) -> np.ndarray | None:
    """Known weights of a transposed convolution less their zero point, if these are signed bytes."""
    assert w.known is not None
    if _is_signed(w):
        return w.known
    centred = w.known.astype(np.int16) - w.zero.astype(np.int16).reshape(-1, *[1] * (w.known.ndim - 2))
    return centred.astype(np.int8) if centred.min(initial=0) >= -128 and centred.max(initial=0) <= 127 else None


def _window_problem(node: ir.Node, w: Dequantised) -> str | None:
    """Why the results of a transposed convolution are not whole windows of sums with vectors of channels."""
    assert w.known is not None
    _, outputs, *kernel = w.known.shape
    rank = len(kernel)
    strides, pads, extra = (
        node.attributes.get_ints(name, default)
        for name, default in (("strides", (1,) * rank), ("pads", (0,) * 2 * rank), ("output_padding", (0,) * rank))
    )
    if node.attributes.get_int("group", 1) != 1 or any(each != 1 for each in node.attributes.get_ints("dilations", (1,))):
        return "it has groups or dilations"
    if node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in node.attributes or rank > 2:
        return "its padding follows from sizes, or it is a volume, whose channels lie far apart"
    if outputs % PLACE_CHANNELS:
        return f"{outputs} channels do not fill vectors at each place of a window"
    axes = zip(kernel, strides, pads[:rank], pads[rank:], extra, strict=True)
    whole = all(begin < taps and (taps - begin - end + more) % stride == 0 for taps, stride, begin, end, more in axes)
    return None if whole else "its result is no whole number of windows"


class IntegerMatMul(Rule):
    """MatMul(DequantizeLinear(a), DequantizeLinear(b)) -> Cast(MatMulInteger(a, b)) * scales, with 8-bit a and a constant matrix b."""

    anchors = frozenset({("", "MatMul")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        b = dequantised(node.inputs[1])
        problem = _operands_problem(dequantised(node.inputs[0]), b, 1)
        assert problem is not None or b is not None
        if problem is None and b is not None and b.known is not None and b.known.ndim != 2:
            return f"the second operand has {b.known.ndim} dimensions"
        return problem

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        a, b = _known(node, 0), _known(node, 1)
        product = _integer_node("MatMulInteger", node, a, b.integers, b.zero_value if b.zero.any() else None)
        return _finish(graph, node, product, a.scale * b.scale, None)


class IntegerActivations(Rule):
    """MatMul(DequantizeLinear(a), DequantizeLinear(b)) -> Cast(MatMulInteger(a, b)) * scales, with 8-bit a and computed b, one scale each.

    Both of attention's products: 12 times 197 x 64 x 197 take 490 us by words where they took 779, 197 x 197 x 64 427 for 680 (Zen 3).
    numpy multiplies integers one by one: at a new length attention of 24 columns took 3.4 s, as floats it takes 0.15 to 0.35.
    """

    anchors = frozenset({("", "MatMul")})  # not early: sums are known to fit when sizes are, and so nothing of it is left to numpy

    def check(self, node: ir.Node) -> str | None:
        a, b = (dequantised(value) for value in node.inputs)
        if a is None or b is None or b.known is not None:
            return ""
        if a.zero.dtype not in BYTES or b.zero.dtype not in BYTES:
            return f"its operands are {a.zero.dtype} and {b.zero.dtype}; integer kernels take 8 bits"
        if not all(each.one_for_all and each.zero.size == 1 for each in (a, b)):
            return "an operand has several scales"
        shape = None if node.inputs[0] is None else node.inputs[0].shape
        depth = None if not shape else shape[-1]
        return _sums_problem(depth, a, b) if isinstance(depth, int) else "how many products are summed is not known"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        a, b = _known(node, 0), _known(node, 1)
        product = _integer_node("MatMulInteger", node, a, b.integers, b.zero_value if b.zero.any() else None)
        return _finish(graph, node, product, (a.scale * b.scale).reshape(()), None)


class IntegerGemm(Rule):
    """Gemm(DequantizeLinear(a), DequantizeLinear(b), c) -> Cast(MatMulInteger(a, b or its transpose)) * scales + c, with a constant b."""

    anchors = frozenset({("", "Gemm")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        axis = 0 if node.attributes.get_int("transB", 0) else 1
        problem = _operands_problem(dequantised(node.inputs[0]), dequantised(node.inputs[1]), axis)
        if problem is None and node.attributes.get_int("transA", 0) != 0:
            return "its first operand is transposed"
        return _bias_problem(node) if problem is None else problem

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        a, b = _known(node, 0), _known(node, 1)
        weights = b.integers
        if node.attributes.get_int("transB", 0):
            assert b.known is not None
            weights = new_constant(graph, f"{node.name}/transposed", b.known.T)
        product = _integer_node("MatMulInteger", node, a, weights, b.zero_value if b.zero.any() else None)
        bias = _constant_bias(node.inputs[2]) if len(node.inputs) > 2 else None
        beta = np.float32(node.attributes.get_float("beta", 1.0))
        added = None if bias is None else new_constant(graph, f"{node.name}/bias", bias * beta)
        factor = a.scale * b.scale * np.float32(node.attributes.get_float("alpha", 1.0))
        return _finish(graph, node, product, factor, added)
