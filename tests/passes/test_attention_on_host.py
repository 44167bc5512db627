"""Attention among nodes that the host would compute: which nodes are one, and which are left as they are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from anycann.graph.registry import TensorType
from anycann.passes.open_attention import AttentionPart, find_attention, with_attention
from anycann.te import dtypes
from tests.session.models import parse

HEAD = "g (float[2,3,N,8] q, float[2,3,8,M] k, float[2,3,M,5] v, float[N,M] mask, float[M,8] other) => (float[2,3,N,5] y)"
CONSTANTS = {"root": np.array([4.0], np.float32), "two": np.array(2, np.float32), "zero": np.array(0, np.float32)}
SCALED = "s = MatMul(q, k) d = Div(s, root) a = Add(d, mask) p = Softmax(a) y = MatMul(p, v)"

FOUND = {
    "plain": ("s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v)", 1.0, ["q", "k", "v"]),
    "last axis": ("s = MatMul(q, k) p = Softmax<axis=3>(s) y = MatMul(p, v)", 1.0, ["q", "k", "v"]),
    "scaled and masked": (SCALED, 0.25, ["q", "k", "v", "mask"]),
    "turned about": ("s = MatMul(q, k) d = Mul(two, s) a = Add(mask, d) p = Softmax(a) y = MatMul(p, v)", 2.0, ["q", "k", "v", "mask"]),
    "turned keys": ("t = Transpose<perm=[0,1,3,2]>(v) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v)", 1.0, ["q", "v", "v"]),
    "keys turned otherwise": ("x = Transpose<perm=[1,0,3,2]>(v) s = MatMul(q, x) p = Softmax(s) y = MatMul(p, v)", 1.0, ["q", "x", "v"]),
    "computed mask": ("t = Exp(mask) s = MatMul(q, k) a = Add(s, t) p = Softmax(a) y = MatMul(p, v)", 1.0, ["q", "k", "v", "t"]),
}
NOT_FOUND = {
    "softmax over rows": "s = MatMul(q, k) p = Softmax<axis=2>(s) y = MatMul(p, v)",
    "scores read elsewhere": "s = MatMul(q, k) p = Softmax(s) e = MatMul(p, v) m = ReduceMax(s) y = Add(e, m)",
    "weights read elsewhere": "s = MatMul(q, k) p = Softmax(s) e = MatMul(p, v) m = ReduceMax(p) y = Add(e, m)",
    "weights as the second operand": "s = MatMul(q, k) p = Softmax(s) t = Transpose<perm=[0,1,3,2]>(v) y = MatMul(t, p)",
    "masked, then scaled": "s = MatMul(q, k) a = Add(s, mask) d = Div(a, root) p = Softmax(d) y = MatMul(p, v)",
    "divided by zero": "s = MatMul(q, k) d = Div(s, zero) p = Softmax(d) y = MatMul(p, v)",
    "a scale that is computed": "e = Exp(mask) s = MatMul(q, k) d = Div(s, e) p = Softmax(d) y = MatMul(p, v)",
    "a number divided by scores": "s = MatMul(q, k) d = Div(two, s) p = Softmax(d) y = MatMul(p, v)",
    "another function": "s = MatMul(q, k) d = Tanh(s) p = Softmax(d) y = MatMul(p, v)",
}


def parts_of(text: str, outputs: str = "", dtype: dtypes.DType = dtypes.float32) -> list[tuple[ir.Node, ...] | AttentionPart]:
    head = HEAD.replace("=> (", f"=> ({outputs}")
    graph = ir.from_proto(parse(f"{head} {{ {text} }}", **CONSTANTS)).graph
    shapes = {"q": (2, 3, 7, 8), "k": (2, 3, 8, 9), "v": (2, 3, 9, 5), "mask": (7, 9), "t": (7, 9), "p": (2, 3, 7, 9)}
    nodes = tuple(graph)

    def type_of(value: ir.Value) -> TensorType:
        return TensorType(dtype, shapes.get(value.name or "", (2, 3, 7, 9)))

    found = find_attention(nodes, set(), type_of)
    return [*with_attention(nodes[:1], found), *with_attention(nodes[1:], found)]


@pytest.mark.parametrize("case", FOUND)
def test_attention_is_one_part(case: str) -> None:
    text, scale, operands = FOUND[case]
    (attention,) = (part for part in parts_of(text) if isinstance(part, AttentionPart))
    assert ([value.name for value in attention.operands], attention.scale) == (operands, scale)
    assert (attention.depth, attention.width, attention.turned) == (8, 5, case == "turned keys")
    assert attention.nodes[-1].outputs[0].name == "y"


@pytest.mark.parametrize("case", NOT_FOUND)
def test_what_is_no_attention_stays(case: str) -> None:
    assert not any(isinstance(part, AttentionPart) for part in parts_of(NOT_FOUND[case]))


def test_results_between_that_somebody_needs_stay() -> None:
    assert not any(isinstance(part, AttentionPart) for part in parts_of(SCALED, "float[2,3,N,M] p, "))
    assert not any(isinstance(part, AttentionPart) for part in parts_of(SCALED, dtype=dtypes.float64))


def test_what_is_relied_on_stays() -> None:
    graph = ir.from_proto(parse(f"{HEAD} {{ {SCALED} }}", **CONSTANTS)).graph
    kept = {graph.node(3).inputs[0]}
    assert not find_attention(tuple(graph), kept, lambda _: TensorType(dtypes.float32, (2, 3, 7, 8)))


def test_other_nodes_keep_their_order() -> None:
    parts = parts_of("e = Exp(other) s = MatMul(q, k) f = Neg(e) p = Softmax(s) x = MatMul(p, v) m = ReduceSum(f) y = Add(x, m)")
    names = [part.nodes[-1].op_type if isinstance(part, AttentionPart) else [node.op_type for node in part] for part in parts]
    assert names == [["Exp"], ["Neg"], "MatMul", ["ReduceSum", "Add"]]
