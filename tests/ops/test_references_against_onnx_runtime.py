"""The numpy meanings that are written here, rather than taken from ONNX, give what ONNX Runtime gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented
import pytest

from anycann.graph.evaluate import evaluate_node
from anycann.graph.reference import operators as own_references
from anycann.graph.registry import OPSET, Operator
from anycann.target.target import host
from tests.ops.operator_runner import build_node, by_onnx_runtime, difference, infer_types
from tests.ops.test_every_operator import operators, samples, title

# ONNX Runtime looks the exponentials up in a table, and is one off.
APPROXIMATE = frozenset({"QLinearSoftmax"})
# Without these it adds pairs of products of unsigned and signed bytes in 16 bits, which saturate if the unsigned ones have more than 7.
EXACT_WITH = ("avx512vnni", "avxvnni")
OWN = frozenset((reference.op_domain, reference.__name__) for reference in own_references())


@pytest.mark.parametrize("operator", [o for o in operators() if (o.domain, o.op_type) in OWN and o.op_type not in APPROXIMATE], ids=title)
def test_a_reference_gives_what_onnx_runtime_gives(operator: Operator) -> None:
    compared = 0
    for sample in samples(operator):
        if any(a is not None and a.dtype == np.float64 for a in sample.operands):
            continue  # its default attributes have 32 bits
        if operator.op_type == "MatMulIntegerToFloat" and host().is_x86 and not any(map(host().has, EXACT_WITH)):
            sample = replace(sample, operands=(sample.operands[0] // 2, *sample.operands[1:]))
        node = build_node(operator, sample)
        types = infer_types(operator, node, sample)
        try:
            wanted = by_onnx_runtime(node, sample, types)
        except (NotImplemented, InvalidGraph, Fail):
            continue  # an element type or form that it has no kernel for
        results = evaluate_node(ir.to_proto(node), OPSET, list(sample.operands))
        for number, (got, want, type_) in enumerate(zip(results, wanted, types, strict=False)):
            if number and operator.op_type.startswith("Skip") and number < 3:
                continue  # the mean and the deviation are only written while training
            assert isinstance(got, np.ndarray)
            assert got.shape == want.shape
            assert difference(got, want, type_.dtype) == "", (sample.attributes, number)
            compared += 1
    assert compared, "ONNX Runtime ran none of the samples"
