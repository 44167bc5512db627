"""Convolutions that read and write row-major planes: where they are found, and that what lies between them needs no copy."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.te.layout import NC1HWC0, ND
from tests.passes.graphs import AVX512, assert_same, by_definition, compile_graph, floats, parse, run, tasks

# a stem with two branches, and what follows it: a convolution with so many channels that it had better read blocks
STEM = """
g (float[1,3,24,768] x) => (float[1,64,6,192] y) {
    a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w0) r = Relu(a)
    b = Conv<pads=[0,0,1,1]>(r, w1) s = Relu(b) c = Conv<pads=[0,0,1,1]>(s, w2)
    m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(r) t = Concat<axis=1>(m, c)
    d = Conv<strides=[2,2], pads=[1,1,1,1]>(t, w3) e = Relu(d) f = Conv(e, w4) u = Relu(f) y = Conv(u, w5)
}"""
WEIGHTS = {
    "w0": floats(24, 3, 3, 3) * 0.3,
    "w1": floats(12, 24, 2, 2, seed=1) * 0.2,
    "w2": floats(24, 12, 2, 2, seed=2) * 0.2,
    "w3": floats(24, 48, 3, 3, seed=3) * 0.1,
    "w4": floats(48, 24, 1, 1, seed=4) * 0.2,
    "w5": floats(64, 48, 1, 1, seed=5) * 0.2,
}


def layouts(text: str, **weights: np.ndarray) -> dict[str, str]:
    program = compile_graph(parse(text, **weights), AVX512).program
    return {name.split("/")[0]: location.layout for name, location in program.values.items()}


def test_a_stem_of_narrow_layers_stays_in_planes_up_to_what_reads_blocks() -> None:
    model = parse(STEM, **WEIGHTS)
    found = layouts(STEM, **WEIGHTS)
    assert [found[name] for name in ("r", "s", "c", "m", "t", "e")] == [ND] * 6
    assert found["u"] == NC1HWC0
    kinds = ["+".join(task.op_types) for task in tasks(compile_graph(model).program)]
    assert not any("Concat" in kind or kind == "TransData" for kind in kinds[:-1])
    feeds = {"x": floats(1, 3, 24, 768, seed=6)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    "readers",
    [
        "z = Conv<group=24, pads=[1,1,1,1]>(r, d) y = Add(z, r)",
        "y = Conv<pads=[1,1,1,1]>(r, w)",
        "p = Conv<pads=[0,0,1,1]>(r, v) z = Conv<group=24, pads=[1,1,1,1]>(r, d) y = Add(z, p)",
    ],
    ids=["depthwise", "Winograd", "one of two"],
)
def test_one_reader_of_blocks_keeps_a_result_in_blocks(readers: str) -> None:
    text = "g (float[1,3,24,768] x) => (float[1,24,12,384] y) { a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, k) r = Relu(a) " + readers + " }"
    weights = {"d": floats(24, 1, 3, 3, seed=1), "w": floats(24, 24, 3, 3, seed=2) * 0.1, "v": floats(24, 24, 2, 2, seed=3) * 0.1}
    used = {name: array for name, array in weights.items() if f", {name})" in readers}
    assert layouts(text, k=WEIGHTS["w0"], **used)["r"] == NC1HWC0
    feeds, model = {"x": floats(1, 3, 24, 768, seed=6)}, parse(text, k=WEIGHTS["w0"], **used)
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("channels", [3, 8, 20])
def test_a_result_that_is_handed_out_is_written_in_planes(channels: int) -> None:
    text = f"g (float[2,3,40,100] x) => (float[2,{channels},40,100] y) {{ c = Conv<pads=[1,1,1,1]>(x, w, b) y = Tanh(c) }}"
    model = parse(text, w=floats(channels, 3, 3, 3) * 0.3, b=floats(channels, seed=1))
    assert len(tasks(compile_graph(model).program)) == 1
    feeds = {"x": floats(2, 3, 40, 100, seed=2)}
    assert_same(run(model, feeds), by_definition(model, feeds))
