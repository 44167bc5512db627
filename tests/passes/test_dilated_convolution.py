"""3 x 3 taps that are d pixels apart are neighbours in d x d images, which Winograd's algorithm computes."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from anycann.assembly import Compiled, GraphCompiler
from anycann.compiler import gear_shapes, input_specs
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.om.growing import GrowingConstants
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.passes.graphs import AVX512, assert_same, by_definition, floats, parse, run
from tests.passes.test_pointwise_convolution import told

CASES = {
    "as large as before": ("1, 64, 33, 33", "dilations = [2, 2], pads = [2, 2, 2, 2]"),
    "of several images": ("2, 64, 28, 30", "dilations = [2, 2], pads = [2, 2, 2, 2]"),
    "with other rows than columns": ("1, 64, 40, 37", "dilations = [3, 1], pads = [3, 1, 3, 1]"),
    "without padding": ("1, 64, 43, 38", 'dilations = [2, 3], auto_pad = "VALID"'),
    "with padding that is no multiple": ("1, 64, 41, 37", "dilations = [2, 2], pads = [1, 3, 2, 0]"),
    "with more padding than it needs": ("1, 64, 35, 29", "dilations = [2, 2], pads = [4, 0, 6, 5]"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_dilated_convolution_is_one_of_every_dth_pixel(name: str) -> None:
    image, attributes = CASES[name]
    text = f"g (float[{image}] x) => (float[N, C, H, W] y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}"
    constants = {"w": floats(64, 64, 3, 3) / 24, "b": floats(64)}
    model = parse(text, **constants)
    assert told(model) == ("DilatedConvolution applied to c",)
    feeds = {"x": floats(*(int(size) for size in image.split(", ")))}
    written_out = parse(text.replace(', auto_pad = "VALID"', ""), **constants)  # which the reference does not know
    assert_same(run(model, feeds), by_definition(written_out, feeds))


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "reason"),
    [
        ("1, 64, 33, 33", (64, 64, 5, 5), "", "Winograd's algorithm does not know it"),
        ("1, 64, 33, 33", (64, 1, 3, 3), "group = 64,", "Winograd's algorithm does not know it"),
        ("1, 64, 33, 33", (64, 64, 3, 3), "strides = [2, 2],", "it takes steps"),
        ("1, 16, 33, 33", (64, 16, 3, 3), "", "it has few channels for each pixel that would be moved"),
        ("1, 64, 9, 9", (64, 64, 3, 3), "", "there are few pixels for its weights"),
        ("16, 64, 7, 7", (64, 64, 3, 3), "", "its phases fill few tiles"),
        ("1, 64, 33, 33", (64, 64, 3, 3), 'auto_pad = "SAME_UPPER",', "its padding is not written out"),
    ],
)
def test_others_stay(image: str, weights: tuple[int, ...], attributes: str, reason: str) -> None:
    text = f"g (float[{image}] x) => (float[N, C, H, W] y) {{ y = Conv<{attributes} dilations = [2, 2]>(x, w) }}"
    assert told(parse(text, w=floats(*weights))) == (f"DilatedConvolution skipped y: {reason}",)


def compiled(target: Target = AVX512, switched_off: frozenset[str] = frozenset(), storage: DType | None = None) -> Compiled:
    text = "g (float[1, 64, 33, 33] x) => (float[N, C, H, W] y) { y = Conv<dilations = [2, 2], pads = [2, 2, 2, 2]>(x, w) }"
    graph = upgrade_model(ir.from_proto(parse(text, w=floats(64, 64, 3, 3))))
    (shapes,) = gear_shapes(graph.graph, ())
    return GraphCompiler(target, GrowingConstants(), storage, switched_off).compile(graph, input_specs(graph.graph, shapes))


def applied(made: Compiled) -> bool:
    return any("DilatedConvolution applied" in line for report in made.reports for line in report.lines)


def test_it_is_left_where_winograd_is_not_taken() -> None:
    assert applied(compiled(storage=dtypes.bfloat16))
    assert not applied(compiled(switched_off=frozenset({"winograd"})))
    pairs = replace(AVX512, features=f"{AVX512.features},+avx512bf16")
    assert not applied(compiled(pairs, storage=dtypes.bfloat16))


@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_winograd_computes_the_phases_with_few_and_with_many_lanes(target: str) -> None:
    assert any(symbol.startswith("winograd") for symbol in compiled(by_name(target)).kernels)
