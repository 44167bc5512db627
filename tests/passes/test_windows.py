"""Pictures on their way into a convolution: made row by row in its kernel, with the same bits as when the whole picture is made first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, convert_model
from anycann.explain import explain
from anycann.target.target import Target, host
from tests.passes.graphs import AVX512, assert_same, by_definition, compile_graph, floats, parse, run, tasks

YUV = 'input_format = "YUV420SP_U8", order = [0, 2, 1], input_bias = [16.0, 128.0, 128.0]'
MATRIX = "matrix = [298.0, 0.0, 409.0, 298.0, -100.0, -208.0, 298.0, 516.0, 0.0]"
SCALED = "subtracted = [104.0, 117.5, 123.0], factors = [0.5, 1.0, 0.25]"
RGB = f'input_format = "RGB888_U8", order = [2, 1, 0], {SCALED}'
FRAME = "crop = [3, 5, 51, 50], pads = [1, 2, 0, 3], padding = 7.0"
XRGB = 'input_format = "XRGB8888_U8", order = [1, 2, 3, 0], channels = 4'
GREY = 'input_format = "YUV400_U8", order = [0], channels = 1, subtracted = [3.0]'
SMALL = 1 << 12  # bytes of a second-level cache: windows of few rows


def bytes_(*shape: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, shape, np.uint8)


def model(picture: str, aipp: str, conv: str, weights: np.ndarray) -> onnx.ModelProto:
    text = f"p = anycann.Aipp<{aipp}>(x) c = Conv<{conv}>(p, w) y = Relu(c)"
    return parse(f"demo (uint8[{picture}] x) => (float[N, C, H, W] y) {{ {text} }}", w=weights)


def launched(model: onnx.ModelProto, target: Target = AVX512) -> list[str]:
    return ["+".join(task.op_types) for task in tasks(compile_graph(model, target).program)]


def same_bits(model: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: object) -> list[np.ndarray]:
    """What a session computes with windows, which is what it computes without them."""
    target = replace(host(), l2_bytes=SMALL)
    apart = run(model, feeds, target=target, switched_off=frozenset(["bands"]), num_threads=1, **options)
    for threads in (1, 3):
        got = run(model, feeds, target=target, num_threads=threads, **options)
        for one, other in zip(got, apart, strict=True):
            np.testing.assert_array_equal(one, other)
    return apart


CASES = {
    "nv21 to rgb": ("1, 69, 50", f"{YUV}, {MATRIX}, {SCALED}", "strides = [2, 2], pads = [1, 1, 1, 1]", floats(20, 3, 3, 3)),
    "two pictures": ("2, 69, 38", f"{YUV}, {MATRIX}", "strides = [2, 2], pads = [3, 3, 3, 3]", floats(33, 3, 7, 7)),
    "crop and padding": ("1, 60, 57, 3", f"{RGB}, {FRAME}", "pads = [1, 0, 2, 1]", floats(16, 3, 3, 3)),
    "four channels": ("1, 41, 37, 4", XRGB, "dilations = [2, 2]", floats(8, 4, 3, 3)),
    "brightness": ("3, 40, 33", GREY, "strides = [3, 1]", floats(24, 1, 2, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_aipp_and_a_convolution_are_one_kernel(name: str) -> None:
    made = model(*CASES[name])
    assert launched(made)[0] == "Aipp+Conv+Relu"
    picture = bytes_(*(int(size) for size in CASES[name][0].split(",")))
    assert same_bits(made, {"x": picture})[0].any()


@pytest.mark.parametrize("name", ["nv21 to rgb", "two pictures", "brightness"])
def test_bfloat16_and_bytes_read_windows_too(name: str) -> None:
    picture, aipp, conv, weights = CASES[name]
    same_bits(
        model(picture, aipp, conv, weights), {"x": bytes_(*(int(size) for size in picture.split(",")))}, precision_mode="mixed_bfloat16"
    )
    text = f"""p = anycann.Aipp<{aipp}>(x) q = QuantizeLinear(p, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, t, o)
        c = Conv<{conv}>(d, v) e = QuantizeLinear(c, t, z) y = DequantizeLinear(e, t, z)"""
    integers = np.random.default_rng().integers(-20, 20, weights.shape, np.int8)
    scales = {"s": np.float32(2), "z": np.uint8(128), "t": np.float32(0.5), "o": np.int8(0)}
    quantised = parse(f"demo (uint8[{picture}] x) => (float[N, C, H, W] y) {{ {text} }}", w=integers, **scales)
    assert launched(quantised)[0].startswith("Aipp+QuantizeLinear+")
    assert "Conv" in launched(quantised)[0]
    same_bits(quantised, {"x": bytes_(*(int(size) for size in picture.split(",")))})


def test_nodes_that_scale_a_picture_are_made_row_by_row_too() -> None:
    text = "{ a = Sub(x, m) b = Div(a, s) y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(b, w) }"
    scaled = parse(
        f"demo (float[1, 3, 47, 39] x) => (float[1, 16, 24, 20] y) {text}", m=floats(3, 1, 1), s=np.float32(3), w=floats(16, 3, 3, 3)
    )
    assert launched(scaled)[0] == "Sub+Div+Conv"
    feeds = {"x": floats(1, 3, 47, 39, seed=1)}
    assert_same(same_bits(scaled, feeds), by_definition(scaled, feeds))


@pytest.mark.parametrize(("perm", "picture"), [([3, 0, 1, 2], (3, 47, 39, 16)), ([2, 3, 0, 1], (47, 39, 16, 3))], ids=str)
def test_pictures_may_lie_side_by_side_element_by_element(perm: list[int], picture: tuple[int, ...]) -> None:
    text = f"{{ t = Transpose<perm = {perm}>(x) a = Div(t, s) y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a, w) }}"
    sizes = ", ".join(map(str, picture))
    batch = parse(f"demo (float[{sizes}] x) => (float[16, 8, 24, 20] y) {text}", s=np.float32(3), w=floats(8, 3, 3, 3))
    assert launched(batch)[0] == "Transpose+Div+Conv"
    feeds = {"x": floats(*picture, seed=1)}
    assert_same(same_bits(batch, feeds), by_definition(batch, feeds))


def test_the_memory_of_a_model_is_without_the_picture() -> None:
    made = model("1, 150, 100", f"{YUV}, {MATRIX}", "strides = [2, 2]", floats(16, 3, 3, 3))
    made.graph.node.append(onnx.helper.make_node("MaxPool", ["y"], ["z"], kernel_shape=[7, 7], strides=[7, 7], name="pool"))
    made.graph.output[0].name = "z"
    whole, window = compile_graph(made, fuse=False).program, compile_graph(made).program
    picture = 4 * 3 * 100 * 100
    assert whole.arena_bytes - window.arena_bytes >= picture
    assert max(task.scratch_bytes for task in tasks(window)) < picture + 4096


def test_a_convolution_in_a_window_begins_a_chain_of_bands() -> None:
    made = model("1, 75, 48", f"{YUV}, {MATRIX}", "pads = [1, 1, 1, 1]", floats(24, 3, 3, 3))
    made.graph.node.append(onnx.helper.make_node("Conv", ["y", "f"], ["z"], group=24, pads=[1, 1, 1, 1], name="filter"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(floats(24, 1, 3, 3), "f"))
    made.graph.output[0].name = "z"
    assert launched(made, replace(AVX512, l2_bytes=1 << 17))[0] == "Aipp+Conv+Relu+Conv"
    same_bits(made, {"x": bytes_(1, 75, 48)})


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("y = MaxPool<kernel_shape = [2, 2]>(p)", "y stays apart from p: it reads each element of 'p' 4 times"),
        ("c = Conv(p, w) d = Conv(p, v) y = Concat<axis = 1>(c, d)", "c stays apart from p: 2 nodes read it"),
        ("y = Conv(p, q)", "y stays apart from p: a transposed convolution, or one of weights that are computed"),
    ],
)
def test_a_picture_that_is_kept_says_why(rest: str, reason: str) -> None:
    text = f"demo (uint8[1, 41, 37, 3] x, float[4, 3, 3, 3] q) => (float[N, C, H, W] y) {{ p = anycann.Aipp<{RGB}>(x) {rest} }}"
    kept = parse(text, w=floats(4, 3, 3, 3), v=floats(5, 3, 3, 3))
    if "q)" not in rest:
        del kept.graph.input[1]
    assert len(launched(kept)) > 1
    lines = [line.strip() for line in explain(convert_model(kept, CompileOptions(target=AVX512))).lines()]
    assert any(line.startswith(reason) for line in lines), lines
    feeds = {"x": bytes_(1, 41, 37, 3), "q": floats(4, 3, 3, 3)}
    same_bits(kept, {value.name: feeds[value.name] for value in kept.graph.input})
