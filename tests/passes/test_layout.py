"""In which layout values are stored: by what axis 1 means, and by who reads them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, compile_model
from anycann.om.plan import Program
from anycann.te.layout import NC1HWC0, ND
from tests.passes.graphs import AVX512, assert_same, by_definition, compile_graph, floats, parse, run, tasks

WITH_TILES = replace(AVX512, features=AVX512.features + ",+avx512bf16,+amx-tile,+amx-bf16")
# a block of ConvNeXt: the rows of the image are axis 1 of what the product reads
BLOCK = """
g (float[1,32,18,20] x) => (float[1,32,18,20] y) {
    c = Conv<group=32, pads=[1,1,1,1]>(x, d) t = Transpose<perm=[0,2,3,1]>(c) e = Exp(t)
    m = MatMul(e, w) r = Relu(m) n = MatMul(r, v) u = Transpose<perm=[0,3,1,2]>(n)
    s = Sigmoid(u) y = Conv<group=32, pads=[1,1,1,1]>(s, d)
}"""


def block() -> onnx.ModelProto:
    return parse(BLOCK, d=floats(32, 1, 3, 3) * 0.3, w=floats(32, 48, seed=1) * 0.1, v=floats(48, 32, seed=2) * 0.1)


def narrow(model: onnx.ModelProto) -> Program:
    options = CompileOptions(target=WITH_TILES, precision_mode="mixed_bfloat16")
    return next(iter(compile_model(model, options).programs.values()))


def layouts(program: Program) -> dict[str, str]:
    return {name.split("/")[0]: location.layout for name, location in program.values.items()}


def test_rows_of_an_image_are_no_channels_and_convolutions_find_their_blocks_written() -> None:
    found = compile_graph(block()).program
    assert [layouts(found)[name] for name in ("c", "e", "r", "n", "s")] == [NC1HWC0, ND, ND, ND, NC1HWC0]
    assert ["+".join(task.op_types) for task in tasks(found)].count("TransData") == 2  # x and y, which are row-major outside
    feeds = {"x": floats(1, 32, 18, 20)}
    assert_same(run(block(), feeds), by_definition(block(), feeds))


@pytest.mark.parametrize("size", [16, 4])
def test_narrow_vectors_are_not_scattered_over_planes_either(size: int) -> None:
    text = f"g (float[1,64,{size},{size}] x) => (float[1,32,{size * size}] y) {{ c = Conv(x, w) f = Reshape(c, s) y = Softmax(f) }}"
    found = narrow(parse(text, w=floats(32, 64, 1, 1), s=np.array([1, 32, size * size])))
    kinds = ["+".join(task.op_types) for task in tasks(found)]
    assert kinds[1:] == ["Conv+Cast", *["TransData"] * (size == 16), "Cast+Softmax"]


@pytest.mark.parametrize(("mode", "apart"), [("linear", True), ("nearest", False)])
def test_what_is_interpolated_is_widened_once(mode: str, apart: bool) -> None:
    text = f"""g (float[1,16,6,6] x) => (float[1,16,12,12] y) {{
        c = Conv(x, w) r = Relu(c) q = Resize<mode="{mode}">(r, , k) z = Relu(q) y = Conv(z, w) }}"""
    found = narrow(parse(text, w=floats(16, 16, 1, 1) * 0.2, k=np.array([1, 1, 2, 2], np.float32)))
    kinds = [task.op_types for task in tasks(found)]
    assert (("Cast",) in kinds) == apart


def test_computed_weights_are_read_row_major_whoever_makes_them() -> None:
    text = """g (float[1,24,6,6] x, float[40,24,3,3] k) => (float[1,40,6,6] y, float[1,40,6,6] z) {
        r = Relu(k) y = Conv<pads=[1,1,1,1]>(x, r)
        c = Conv(k, w) s = Sigmoid(c) z = Conv<pads=[1,1,1,1]>(x, s) }"""
    model, feeds = parse(text, w=floats(24, 24, 1, 1, seed=2)), {"x": floats(1, 24, 6, 6), "k": floats(40, 24, 3, 3, seed=1)}
    assert layouts(compile_graph(model).program)["r"] == ND
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_a_value_may_be_image_and_weights_of_one_convolution() -> None:
    model, feeds = parse("g (float[40,40,3,3] k) => (float[40,40,1,1] y) { r = Relu(k) y = Conv(r, r) }"), {"k": floats(40, 40, 3, 3)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(("channels", "copied"), [(8, False), (3, True)])
def test_few_channels_beside_a_depthwise_convolution_are_written_in_blocks_and_not_copied(channels: int, copied: bool) -> None:
    text = f"""g (float[1,3,17,19] x) => (float[1,16,17,19] y) {{
        a = Conv<pads=[1,1,1,1]>(x, k) r = Relu(a) c = Conv<group={channels}, pads=[1,1,1,1]>(r, d) s = Relu(c) y = Conv(s, w) }}"""
    weights = {"k": floats(channels, 3, 3, 3), "d": floats(channels, 1, 3, 3, seed=1), "w": floats(16, channels, 1, 1, seed=2)}
    model, feeds = parse(text, **weights), {"x": floats(1, 3, 17, 19)}
    found = compile_graph(model).program
    assert any(task.nodes[0].startswith("r/TransData") for task in tasks(found)) == copied
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(("size", "copied"), [(8, True), (7, False)])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_planes_are_made_larger_from_planes(size: int, copied: bool, mode: str) -> None:
    constants = {"w": floats(32, 16, 1, 1), "k": np.array([1, 1, 3, 2], np.float32)}
    text = f'g (float[1,16,{size},{size}] x) => (float[N,C,H,W] y) {{ c = Conv(x, w) y = Resize<mode="{mode}">(c, , k) }}'
    model = parse(text, **constants)
    kinds = ["+".join(task.op_types) for task in tasks(compile_graph(model).program)]
    assert kinds[-1] == "Resize"
    assert ("TransData" in kinds[kinds.index("Conv") :]) == copied
    feeds = {"x": floats(1, 16, size, size)}
    (small,) = by_definition(parse(f"g (float[1,16,{size},{size}] x) => (float[N,C,H,W] c) {{ c = Conv(x, w) }}", **constants), feeds)
    assert_same(run(model, feeds), [_enlarged(_enlarged(small, 2, 3, mode), 3, 2, mode)])


def _enlarged(x: np.ndarray, axis: int, times: int, mode: str) -> np.ndarray:
    """Resize of one axis, by half pixels: what onnx.reference takes minutes for."""
    places = (np.arange(x.shape[axis] * times) + 0.5) / times - 0.5
    places = np.ceil(places - 0.5) if mode == "nearest" else places
    lines = np.apply_along_axis(lambda line: np.interp(places, np.arange(line.size), line), axis, x)
    return lines.astype(x.dtype)


def test_what_slides_over_channels_reads_and_writes_planes() -> None:
    text = """g (float[1,16,12,12] x) => (float[1,16,12,12] y) {
        c = Conv(x, w) n = LRN<size=5, alpha=0.3, beta=0.75>(c) r = Relu(n) y = Conv(r, w) }"""
    weights, image = floats(16, 16, 1, 1), floats(1, 16, 12, 12, seed=1)
    model = parse(text, w=weights)
    found = compile_graph(model).program
    (window,) = [task for task in tasks(found) if "LRN" in task.op_types]
    assert [found.values[name].layout for name in window.outputs] == [ND]
    assert "TransData" in [task.op_types[-1] for task in tasks(found)[: tasks(found).index(window)]]
    c = np.einsum("oi,nihw->nohw", weights[:, :, 0, 0], image)  # onnx.reference normalises only as many channels as there are images
    sums = np.stack([(c[:, max(0, k - 2) : k + 3] ** 2).sum(1) for k in range(16)], 1)
    normal = c / (1 + 0.3 / 5 * sums) ** 0.75
    want = np.einsum("oi,nihw->nohw", weights[:, :, 0, 0], np.maximum(normal, 0))
    assert_same(run(model, {"x": image}), [want])


@pytest.mark.parametrize(
    ("channels", "rows", "copies"), [(40, 20, 2), (3, 20, 0), (40, 3, 0)], ids=["blocks", "few channels", "few pixels"]
)
def test_pixels_are_picked_from_blocks_of_channels(channels: int, rows: int, copies: int) -> None:
    """Not from channels that fill no vector, and not a few pixels of a picture that would have to be copied."""
    text = f"""g (float[2,{channels},10,14] x, float[2,{rows},5,2] g) => (float[2,{channels},{rows},5] y) {{
        s = GridSample<mode="linear">(x, g) y = Relu(s) }}"""
    model, rng = parse(text), np.random.default_rng()
    assert ["+".join(task.op_types) for task in tasks(compile_graph(model).program)].count("TransData") == copies
    feeds = {"x": floats(2, channels, 10, 14), "g": rng.uniform(-1.3, 1.3, (2, rows, 5, 2)).astype(np.float32)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_places_that_are_computed_once_are_those_of_every_channel(mode: str, padding: str) -> None:
    """Between convolutions, whose channels lie in blocks, the last of them partly filled; and from planes of few channels."""
    text = f"""g (float[2,5,9,11] x, float[2,13,8,2] g) => (float[2,37,13,8] y, float[2,5,13,8] z) {{
        c = Conv(x, w) s = GridSample<mode="{mode}", padding_mode="{padding}">(c, g) y = Relu(s)
        z = GridSample<mode="{mode}", padding_mode="{padding}", align_corners=1>(x, g) }}"""
    model, rng = parse(text, w=floats(37, 5, 1, 1)), np.random.default_rng(7)
    feeds = {"x": floats(2, 5, 9, 11), "g": rng.uniform(-1.3, 1.3, (2, 13, 8, 2)).astype(np.float32)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_regions_are_sampled_from_blocks_of_channels() -> None:
    text = """g (float[1,40,12,13] x, float[9,4] r, int64[9] b) => (float[9,40,3,2] y) {
        y = RoiAlign<output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.5>(x, r, b) }"""
    model, rng = parse(text), np.random.default_rng()
    corner = rng.uniform(0, 14, (9, 2))
    regions = np.concatenate([corner, corner + rng.uniform(1, 12, (9, 2))], 1).astype(np.float32)
    assert ["+".join(task.op_types) for task in tasks(compile_graph(model).program)] == ["TransData", "RoiAlign", "TransData"]
    feeds = {"x": floats(1, 40, 12, 13), "r": regions, "b": np.zeros(9, np.int64)}
    assert_same(run(model, feeds), by_definition(model, feeds))
