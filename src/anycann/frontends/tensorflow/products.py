"""Products of matrices, and Einsum."""

from __future__ import annotations

import onnx_ir as ir

from anycann.frontends.tensorflow.definition import Call, Result, operator


@operator("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def _product(call: Call) -> Result:
    """transpose_a and transpose_b (adj_x and adj_y) turn the last two axes."""
    turned = ("transpose_a", "transpose_b") if call.node.op == "MatMul" else ("adj_x", "adj_y")
    operands = [_matrix(call, number, bool(call.attribute(name, False))) for number, name in enumerate(turned)]
    return call.op("MatMul", *operands)


def _matrix(call: Call, number: int, is_turned: bool) -> ir.Value:
    value = call.value(number)
    if not is_turned:
        return value
    rank = call.rank(number)
    return call.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


@operator("Einsum")
def _einsum(call: Call) -> Result:
    return call.op("Einsum", *(call.value(number) for number in range(len(call.tensors))), equation=call.text("equation", ""))
