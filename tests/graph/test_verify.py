"""The verifier finds what a careless pass leaves behind."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from anycann.graph.registry import TensorType
from anycann.graph.verify import Agreed, faults, verify
from anycann.passes.specialise import specialise
from anycann.support.errors import InternalError
from anycann.te import dtypes

TEXT = """<ir_version: 10, opset_import: ["": 26]>
g (float[2, 3] x) => (float[2, 3] y) { a = Relu(x)  b = Exp(a)  y = Add(a, b) }"""


@pytest.fixture
def graph() -> ir.Graph:
    graph = ir.from_proto(onnx.parser.parse_model(TEXT)).graph
    specialise(graph, {"x": TensorType(dtypes.float32, (2, 3))})
    return graph


def test_a_good_graph_has_no_faults(graph: ir.Graph) -> None:
    assert list(faults(graph, typed=True)) == []


def test_a_value_used_before_it_is_made_is_found(graph: ir.Graph) -> None:
    first, second, _ = graph
    first.replace_input_with(0, second.outputs[0])
    assert [fault for fault in faults(graph) if "used before it is made" in fault]


def test_a_wrong_shape_is_found(graph: ir.Graph) -> None:
    list(graph)[1].outputs[0].shape = ir.Shape([2, 4])
    found = list(faults(graph, typed=True))
    assert any("'b' is float32[2, 4], but Exp makes" in fault for fault in found), found


def test_a_wrong_element_type_is_found(graph: ir.Graph) -> None:
    list(graph)[1].outputs[0].type = ir.TensorType(ir.DataType.INT32)
    assert list(faults(graph, typed=True))


def test_two_values_of_one_name_are_found(graph: ir.Graph) -> None:
    list(graph)[1].outputs[0].name = "a"
    assert list(faults(graph)) == ["two values are called 'a'"]


def test_an_output_that_nothing_makes_is_found(graph: ir.Graph) -> None:
    graph.outputs[0] = ir.Value(name="nowhere")
    assert list(faults(graph)) == ["output 'nowhere' is made nowhere"]


def test_the_error_names_the_pass(graph: ir.Graph) -> None:
    list(graph)[1].outputs[0].name = "a"
    with pytest.raises(InternalError, match="after the pass 'rules' the graph is wrong: two values are called 'a'"):
        verify(graph, "rules", typed=False)


@pytest.mark.parametrize("change", ["operand", "attribute", "no attribute", "known value", "operator", "result"])
def test_what_changed_since_it_agreed_is_inferred_again(change: str) -> None:
    text = """<ir_version: 10, opset_import: ["": 26]>
        g (float[2, 3] x) => (float[6] y) <int64[1] s = {6}> { a = Transpose<perm = [0, 1]>(x)  b = Exp(a)  y = Reshape(b, s) }"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    agreed: Agreed = {}
    specialise(graph, {"x": TensorType(dtypes.float32, (2, 3))})
    turned, exponential, reshaped = graph
    assert list(faults(graph, True, agreed)) == list(faults(graph, True, agreed)) == []
    assert len(agreed) == 3
    match change:
        case "operand":
            turned.outputs[0].shape = ir.Shape([3, 2])
        case "attribute":
            turned.attributes["perm"] = ir.AttrInt64s("perm", [1, 0])
        case "no attribute":
            del turned.attributes["perm"]
        case "known value":
            reshaped.inputs[1].const_value = ir.tensor([3, 2])
        case "operator":
            exponential.op_type = "Shape"
        case "result":
            exponential.outputs[0].dtype = ir.DataType.DOUBLE
    found = list(faults(graph, True, agreed))
    assert found
    assert list(faults(graph, True, agreed)) == found
