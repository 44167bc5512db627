"""Fusion rules, one file each, and the driver that applies them.

A rule looks at one node (the last of its pattern) and either says why it does not apply, or builds what replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.passes.rules.attention import FuseAttention
from anycann.passes.rules.attention_result import ReshapeAttention, TransposeAttention
from anycann.passes.rules.batch_normalization import FoldBatchNormalization
from anycann.passes.rules.byte_functions import TabulateBytes
from anycann.passes.rules.channels_last import ImageOfSequence, SequenceOfImage
from anycann.passes.rules.deformable import MovedConvolution, ScatterOfUnpool
from anycann.passes.rules.dequantize_lstm import DequantizeLSTM
from anycann.passes.rules.einsum import ProductOfEinsum
from anycann.passes.rules.fourier import ProductOfFourier, ProductOfFrames
from anycann.passes.rules.gelu import GeluOfParts
from anycann.passes.rules.growing_concat import GrowingConcat
from anycann.passes.rules.integer_products import (
    IntegerActivations,
    IntegerConvolution,
    IntegerGemm,
    IntegerMatMul,
    IntegerTransposedConvolution,
)
from anycann.passes.rules.line_convolution import ConvolutionOfLines
from anycann.passes.rules.microsoft_attention import MultiHeadAttention, PackedAttention
from anycann.passes.rules.mish import MishOfParts
from anycann.passes.rules.move_dequantize import DequantizeLater, QuantizeBeforeMoving, QuantizedAgain, QuantizeEarlier, UnsignedBytes
from anycann.passes.rules.onnx_attention import LowerAttention
from anycann.passes.rules.padded_convolution import PaddingOfConvolution, PaddingOfWideConvolution
from anycann.passes.rules.parallel_convolutions import SumOfConvolutions
from anycann.passes.rules.places import BoundPlaces
from anycann.passes.rules.pointwise_convolution import PointwiseConvolution
from anycann.passes.rules.quantised_gemm import IntegerQGemm
from anycann.passes.rules.quantised_operators import QuantisedOperator
from anycann.passes.rules.repeated_blocks import ExpandOfTile
from anycann.passes.rules.requantise import QuantizeActivations, QuantizeByProduct
from anycann.passes.rules.rule import Rule, replace
from anycann.passes.rules.scaled_weights import FloatWeights, ScaledWeights
from anycann.passes.rules.separate_pool import SeparatePool
from anycann.passes.rules.strided_pixels import StridedPixels
from anycann.passes.rules.suppression import BoundSuppression
from anycann.passes.rules.table_rows import FunctionOfRows, OneHotProduct
from anycann.passes.rules.transposed_product import SeparateWindows
from anycann.passes.rules.transposes import TransposedOperand, TwoTransposes
from anycann.passes.rules.unread_taps import UnreadTaps
from anycann.passes.rules.write_range import WriteRange
from anycann.passes.rules.zero_points import SplitZeroPoint

RULES: tuple[Rule, ...] = (
    QuantisedOperator(), PaddingOfConvolution(), UnsignedBytes(), DequantizeLater(), QuantizeBeforeMoving(), QuantizeEarlier(),
    QuantizedAgain(), IntegerConvolution(), IntegerTransposedConvolution(), IntegerMatMul(), IntegerActivations(), IntegerGemm(),
    IntegerQGemm(), QuantizeByProduct(), QuantizeActivations(), ScaledWeights(), FloatWeights(),
    DequantizeLSTM(), FoldBatchNormalization(), SumOfConvolutions(), UnreadTaps(), SplitZeroPoint(), ProductOfEinsum(), ProductOfFourier(),
    ProductOfFrames(), MovedConvolution(), ScatterOfUnpool(),
    FuseAttention(), MultiHeadAttention(), PackedAttention(), LowerAttention(), ReshapeAttention(), TransposeAttention(),
    BoundSuppression(), BoundPlaces(), WriteRange(), ExpandOfTile(), SeparateWindows(), SeparatePool(), GeluOfParts(),
    MishOfParts(), PointwiseConvolution(), ConvolutionOfLines(), PaddingOfWideConvolution(),
    StridedPixels(), OneHotProduct(), FunctionOfRows(), TabulateBytes(), ImageOfSequence(),
    SequenceOfImage(), TwoTransposes(), TransposedOperand(), GrowingConcat(),
)  # fmt: skip


def apply_rules(graph: ir.Graph, rules: Sequence[Rule]) -> list[str]:
    """Apply each rule wherever it fits, in order; answers what was done and why not."""
    lines: list[str] = []
    for rule in rules:
        for node in list(graph):
            if node.graph is graph and (node.domain, node.op_type) in rule.anchors:
                lines.append(_apply(graph, rule, node))
    return [line for line in lines if line]


def _apply(graph: ir.Graph, rule: Rule, node: ir.Node) -> str:
    reason = rule.check(node)
    if reason is not None:
        return f"{rule.name} skipped {node.name}: {reason}" if reason else ""
    replace(graph, node, rule.rewrite(graph, node))
    return f"{rule.name} applied to {node.name}"
