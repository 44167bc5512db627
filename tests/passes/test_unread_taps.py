"""Taps that only ever meet padding are left out of a convolution."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from anycann.passes.rules import apply_rules
from anycann.passes.rules.unread_taps import UnreadTaps
from tests.passes.graphs import assert_same, by_definition, floats, parse, run, told


def taps_left(model: onnx.ModelProto) -> tuple[int, ...]:
    """The taps of the only convolution, once the rule was applied."""
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(model)).graph
    apply_rules(graph, [UnreadTaps()])
    (weights,) = [node.inputs[1] for node in graph if node.op_type == "Conv"]
    assert weights is not None
    assert weights.const_value is not None
    return tuple(weights.const_value.shape[2:])


CASES = {  # image, weights, attributes, taps that are left
    "a line": ("1,8,1,19", (20, 8, 3, 3), "pads=[1,1,1,1]", (1, 3)),
    "a point": ("2,8,1,1", (20, 8, 5, 5), "pads=[2,2,2,2]", (1, 1)),
    "far taps": ("1,8,5,1", (20, 8, 5, 5), "pads=[8,8,8,8], dilations=[4,4]", (3, 1)),
    "with strides": ("1,8,3,7", (20, 8, 5, 5), "pads=[6,2,6,2], strides=[2,3], dilations=[3,1]", (1, 5)),
    "padding on one side": ("1,8,2,9", (20, 8, 4, 3), "pads=[3,0,0,2]", (2, 3)),
    "more behind": ("1,8,2,9", (20, 8, 4, 3), "pads=[0,0,7,5]", (2, 3)),
    "groups": ("1,8,1,9", (24, 2, 3, 3), "pads=[1,1,1,1], group=4", (1, 3)),
    "a channel each": ("1,8,9,1", (8, 1, 7, 7), "pads=[3,3,3,3], group=8", (7, 1)),
    "lines": ("1,8,2", (20, 8, 9), "pads=[4,4]", (3,)),
    "volumes": ("1,4,1,3,2", (12, 4, 3, 3, 3), "pads=[1,1,1,1,1,1]", (1, 3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_taps_that_only_meet_padding_are_left_out(name: str) -> None:
    image, weights, attributes, left = CASES[name]
    sizes = ", ".join("NCDHW"[: image.count(",") + 1])
    text = f"g (float[{image}] x) => (float[{sizes}] y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}"
    model = parse(text, w=floats(*weights) / 24, b=floats(weights[0], seed=1))
    assert "UnreadTaps applied to c" in told(model)
    assert taps_left(model) == left
    feeds = {"x": floats(*map(int, image.split(",")), seed=2)}
    assert_same(run(model, feeds), by_definition(model, feeds))
    assert_same(run(model, feeds), run(model, feeds, switched_off=frozenset({UnreadTaps().name})))


def test_a_convolution_that_reads_no_pixel_stays() -> None:
    text = "g (float[1,4,1,1] x) => (float[N,C,H,W] y) { y = Conv<pads=[2,2,0,0], strides=[9,9], dilations=[3,3]>(x, w, b) }"
    model = parse(text, w=floats(5, 4, 1, 1), b=floats(5, seed=1))
    assert "UnreadTaps applied to y" not in told(model)
    (result,) = run(model, {"x": floats(1, 4, 1, 1)})
    np.testing.assert_array_equal(result.reshape(-1), floats(5, seed=1))
