"""Sequences of pixels that become images, and back: the results, where they lie, and that nothing is copied where the orders agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, compile_model
from anycann.om.plan import Program
from anycann.te.layout import NC1HWC0, NHWC
from tests.passes.graphs import AVX512, assert_same, by_definition, compile_graph, floats, parse, run, tasks, told

WITH_TILES = replace(AVX512, features=AVX512.features + ",+avx512bf16,+amx-tile,+amx-bf16")
IMAGE = "t = Transpose<perm=[0,2,1]>(p) i = Reshape(t, image)"
SEQUENCE = "f = Reshape(c, planes) s = Transpose<perm=[0,2,1]>(f)"


def mixed(size: tuple[int, int] = (6, 5), channels: int = 32, middle: str = "c = Conv<pads=[1,1,1,1]>(i, d)") -> onnx.ModelProto:
    """A product, a convolution of its rows as an image, and a product of the pixels of that."""
    high, wide = size
    text = f"""g (float[2,{high * wide},7] x) => (float[2,{high * wide},9] y) {{
        p = MatMul(x, w) {IMAGE} {middle} {SEQUENCE} e = Exp(s) y = MatMul(e, v) }}"""
    constants = {"w": floats(7, channels) * 0.2, "d": floats(channels, channels, 3, 3, seed=1) * 0.05, "v": floats(channels, 9, seed=2)}
    image, planes = np.array([2, channels, high, wide]), np.array([2, channels, -1])
    return parse(text, **constants, image=image, planes=planes, scale=np.float32(0.5))


def of_sequences(model: onnx.ModelProto) -> list[str]:
    return [line for line in told(model) if line.startswith(("ImageOfSequence", "SequenceOfImage"))]


def narrow(model: onnx.ModelProto) -> Program:
    return next(iter(compile_model(model, CompileOptions(target=WITH_TILES, precision_mode="mixed_bfloat16")).programs.values()))


@pytest.mark.parametrize(("size", "channels"), [((6, 5), 32), ((1, 3), 17), ((9, 7), 3), ((1, 1), 24)], ids=str)
@pytest.mark.parametrize("middle", ["c = Conv<pads=[1,1,1,1]>(i, d)", "c = Sigmoid(i)", "c = Mul(i, scale)"])
def test_images_of_sequences_are_as_by_definition(size: tuple[int, int], channels: int, middle: str) -> None:
    model = mixed(size, channels, middle)
    if size[0] > 1 or "Conv" not in middle:  # one of lines takes these as they lie
        assert of_sequences(model) == ["ImageOfSequence applied to i", "SequenceOfImage applied to s"]
    feeds = {"x": floats(2, size[0] * size[1], 7, seed=3)}
    want = by_definition(model, feeds)
    assert_same(run(model, feeds), want)
    assert_same(run(model, feeds, precision_mode="mixed_bfloat16"), want, tolerance=0.05)


def test_pixels_of_bfloat16_are_an_image_as_they_lie() -> None:
    program = narrow(mixed())
    kinds = ["+".join(task.op_types) for task in tasks(program)]
    assert not [kind for kind in kinds if "Transpose" in kind or "TransData" in kind], kinds
    assert [program.values[name].layout for name in ("i", "c/stored")] == [NHWC, NHWC]


def test_pixels_of_float32_are_written_in_blocks_at_once() -> None:
    program = compile_graph(mixed()).program
    assert program.values["i"].layout == NC1HWC0
    assert not [task for task in tasks(program) if "TransData" in task.op_types]


def test_an_image_that_is_enlarged_keeps_its_channels_together() -> None:
    text = f"""g (float[1,6,7] x) => (float[1,8,6,4] y) {{
        p = MatMul(x, w) {IMAGE} r = Resize<mode="linear">(i, , scales) y = Conv(r, v) }}"""
    image, scales = np.array([1, 17, 3, 2]), np.float32([1, 1, 2, 2])
    constants = {"w": floats(7, 17), "v": floats(8, 17, 1, 1, seed=1) * 0.2}
    model = parse(text, **constants, image=image, scales=scales)
    assert {location.layout for name, location in narrow(model).values.items() if name.startswith("r")} == {NHWC}
    feeds = {"x": floats(1, 6, 7, seed=2)}
    want = by_definition(model, feeds)
    assert_same(run(model, feeds), want)
    assert_same(run(model, feeds, precision_mode="mixed_bfloat16"), want, tolerance=0.05)


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (
            "t = Transpose<perm=[0,2,1]>(x) y = Reshape(t, image) z = Neg(t)",
            "ImageOfSequence skipped y: the transpose is also",
        ),
        ("t = Transpose<perm=[0,2,1]>(x) y = Reshape(t, other) z = Neg(x)", "ImageOfSequence skipped y: its pixels are not"),
        (
            "t = Reshape(x, other) f = Reshape(t, planes) y = Transpose<perm=[0,2,1]>(f) z = Neg(f)",
            "SequenceOfImage skipped y: the seq",
        ),
        ("f = Reshape(x, planes) y = Transpose<perm=[0,2,1]>(f) z = Neg(x)", "SequenceOfImage skipped y: its rows are not"),
    ],
)
def test_other_transposes_stay(nodes: str, line: str) -> None:
    image, other, planes = np.array([2, 8, 3, 4]), np.array([2, 4, 6, 4]), np.array([2, 4, 24])
    model = parse(f"g (float[2,12,8] x) => (float[?] y, float[?] z) {{ {nodes} }}", image=image, other=other, planes=planes)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    assert [reported for reported in of_sequences(model) if reported.startswith(line)], of_sequences(model)
    feeds = {"x": floats(2, 12, 8)}
    assert_same(run(model, feeds), by_definition(model, feeds))
