"""The JSON of a graph."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir

from anycann.frontends.onnx.load import load_model
from anycann.tools.model_json import model_json

MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
net (float[1,N] x, bool flag) => (float[1,N] y)
<float[1] w = {2}>
{
    [twice] t = Mul(x, w)
    c = Constant<value = float[2] {1, 2}>()
    s = ReduceSum<keepdims = 1>(c)
    y = If (flag) <
        then_branch = yes () => (float[1,N] a) { a = Relu(t) },
        else_branch = no () => (float[1,N] b) { b = Add(t, s) }
    >
}
"""


def loaded() -> ir.Model:
    return load_model(onnx.parser.parse_model(MODEL))


def test_operators_name_their_producers_and_bodies_become_graphs() -> None:
    made = model_json(loaded())
    assert [graph["name"] for graph in made["graph"]] == ["net", "yes", "no"]
    ops = {op["name"]: op for op in made["graph"][0]["op"]}
    assert list(ops) == ["x", "flag", "w", "twice", "Constant_0", "ReduceSum_0", "If_0", "Node_Output"]
    assert ops["twice"]["input"] == ["x:0", "w:0"]
    assert ops["x"]["output_desc"] == [{"dtype": "DT_FLOAT", "layout": "ND", "shape": {"dim": [1, "N"]}}]
    assert ops["Constant_0"]["attr"] == [
        {"key": "value", "value": {"dtype": "DT_FLOAT", "layout": "ND", "shape": {"dim": [2]}, "data": [1.0, 2.0]}}
    ]
    assert ops["ReduceSum_0"]["attr"] == [{"key": "keepdims", "value": 1}]
    assert ops["If_0"]["attr"] == [{"key": "then_branch", "value": {"graph": "yes"}}, {"key": "else_branch", "value": {"graph": "no"}}]
    assert ops["Node_Output"]["input"] == ["If_0:0"]
    assert made["opset"] == {"ai.onnx": 18}


def test_shapes_are_inferred_on_demand() -> None:
    model = loaded()
    plain, inferred = model_json(model), model_json(model, with_shapes=True)
    assert plain["graph"][0]["op"][3]["output_desc"] == [{}]
    assert inferred["graph"][0]["op"][3]["output_desc"][0]["shape"] == {"dim": [1, "N"]}
