"""Added convolutions of one image are one, with the numbers of the definition; others stay apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, tasks, told

STATISTICS = {"s": floats(8, seed=5), "t": floats(8, seed=6), "m": floats(8, seed=7), "v": np.abs(floats(8, seed=8)) + 0.5}


def branches(text: str, first: tuple[int, ...], second: tuple[int, ...], **more: np.ndarray) -> onnx.ModelProto:
    model = parse(text, w=floats(*first, seed=1), u=floats(*second, seed=2), b=floats(8, seed=3), **more)
    model.opset_import[0].version = 17
    return model


def convolutions(model: onnx.ModelProto) -> int:
    return sum(task.op_types.count("Conv") for task in tasks(compile_graph(model).program))


def assert_one(model: onnx.ModelProto) -> None:
    feeds = {"x": floats(1, 8, 9, 10)}
    assert convolutions(model) == 1
    assert "BatchNormalization" not in [kind for task in tasks(compile_graph(model).program) for kind in task.op_types]
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_one_tap_and_the_normalised_image_are_the_middle_of_nine(group: int, step: int) -> None:
    size = f"{(9 + step - 1) // step},{10 // step}"
    steps = f"group={group}, strides=[{step},{step}]"
    image = "p = Add(c, n) y = Add(p, d)" if step == 1 else "p = Relu(x) y = Add(c, d)"
    text = f"""g (float[1,8,9,10] x) => (float[1,8,{size}] y) {{ n = BatchNormalization(x, s, t, m, v)
        c = Conv<{steps}>(x, u) d = Conv<{steps}, pads=[1,1,1,1]>(x, w, b) {image} }}"""
    assert_one(branches(text, (8, 8 // group, 3, 3), (8, 8 // group, 1, 1), **STATISTICS))


@pytest.mark.parametrize(
    ("taps", "pads", "dilation"),
    [((3, 3), (1, 1), 1), ((1, 3), (0, 1), 1), ((3, 1), (1, 0), 1), ((5, 3), (2, 1), 1), ((3, 3), (2, 2), 2), ((1, 1), (0, 0), 1)],
)
def test_taps_lie_where_their_padding_says(taps: tuple[int, int], pads: tuple[int, int], dilation: int) -> None:
    sides, apart, all_sides = ",".join(map(str, pads * 2)), f"dilations=[{dilation},{dilation}]", ",".join([str(2 * dilation)] * 4)
    text = f"""g (float[1,8,9,10] x) => (float[1,8,9,10] y) {{ c = Conv<pads=[{sides}], {apart}>(x, u)
        z = Constant<value_float = 0.5>() q = Add(c, z) d = Conv<pads=[{all_sides}], {apart}>(x, w, b)
        e = Conv(x, k) r = Add(d, e) y = Add(q, r) }}"""
    assert_one(branches(text, (8, 8, 5, 5), (8, 8, *taps), k=floats(8, 8, 1, 1, seed=4)))


@pytest.mark.parametrize(
    ("first", "second", "image"),
    [
        ("pads=[1,1,1,1]", "dilations=[2,2], pads=[2,2,2,2]", "x"),  # taps between those of the other
        ("pads=[1,1,1,1]", "pads=[0,2,2,0]", "x"),  # taps beside those of the other
        ("pads=[1,1,1,1]", "pads=[1,1,1,1]", "z"),  # of another image
    ],
)
def test_others_stay_apart(first: str, second: str, image: str) -> None:
    text = f"""g (float[1,8,9,10] x) => (float[1,8,9,10] y) {{ z = Relu(x)
        c = Conv<{first}>(x, w, b) d = Conv<{second}>({image}, u) y = Add(c, d) }}"""
    model, feeds = branches(text, (8, 8, 3, 3), (8, 8, 3, 3)), {"x": floats(1, 8, 9, 10)}
    assert convolutions(model) == 2
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_a_branch_that_is_read_elsewhere_is_computed() -> None:
    text = """g (float[1,8,9,10] x) => (float[1,8,9,10] y, float[1,8,9,10] c) {
        c = Conv(x, u) d = Conv<pads=[1,1,1,1]>(x, w, b) y = Add(c, d) }"""
    model, feeds = branches(text, (8, 8, 3, 3), (8, 8, 1, 1)), {"x": floats(1, 8, 9, 10)}
    assert convolutions(model) == 2
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_the_reason_is_told() -> None:
    text = """g (float[1,8,9,10] x) => (float[1,8,9,10] y) {
        c = Conv<dilations=[2,2], pads=[2,2,2,2]>(x, u) d = Conv<pads=[1,1,1,1]>(x, w, b) y = Add(c, d) }"""
    model = branches(text, (8, 8, 3, 3), (8, 8, 3, 3))
    assert "SumOfConvolutions skipped y: the taps of one convolution do not lie on those of the other" in told(model)
