"""Taps that are d pixels apart, by Winograd's algorithm: every d-th pixel is an image of its own, read where it lies."""

from __future__ import annotations

from dataclasses import replace

import onnx
import onnx_ir as ir
import pytest

from anycann.assembly import Compiled, GraphCompiler
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionAlgorithm
from anycann.compiler import gear_shapes, input_specs
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.om.growing import GrowingConstants
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import AVX512, assert_same, by_definition, compile_graph, floats, parse, run, tasks

CASES = {
    "as large as before": ("1, 64, 33, 33", (3, 3), "dilations = [2, 2], pads = [2, 2, 2, 2]"),
    "of several images": ("2, 32, 28, 30", (3, 3), "dilations = [2, 2], pads = [2, 2, 2, 2]"),
    "with other rows than columns": ("1, 32, 40, 37", (3, 3), "dilations = [3, 1], pads = [3, 1, 3, 1]"),
    "without padding": ("1, 32, 43, 38", (3, 3), 'dilations = [2, 3], auto_pad = "VALID"'),
    "with padding that is no multiple": ("1, 32, 21, 17", (3, 3), "dilations = [2, 2], pads = [1, 3, 2, 0]"),
    "with more padding than it needs": ("1, 32, 15, 19", (3, 3), "dilations = [2, 2], pads = [4, 0, 6, 5]"),
    "with fewer pixels than phases": ("1, 32, 11, 15", (3, 3), "dilations = [4, 6], pads = [0, 0, 0, 0]"),
    "with a phase that has a tile less": ("1, 32, 9, 18", (3, 3), "dilations = [2, 4], pads = [2, 4, 2, 4]"),
    "of 5 x 5": ("1, 32, 20, 23", (5, 5), "dilations = [2, 2], pads = [4, 4, 4, 4]"),
    "of a row": ("1, 32, 11, 23", (1, 3), "dilations = [2, 2], pads = [0, 2, 0, 2]"),
    "of a line": ("2, 32, 50", (3,), "dilations = [4], pads = [4, 4]"),
    "of a line, causal": ("1, 32, 37", (5,), "dilations = [3], pads = [12, 0]"),
    "of a volume": ("1, 32, 4, 9, 11", (3, 3, 3), "dilations = [1, 2, 2], pads = [1, 2, 2, 1, 2, 2]"),
}


def model_of(name: str, channels: int = 24) -> tuple[onnx.ModelProto, onnx.ModelProto, tuple[int, ...]]:
    """Relu(Conv(x) + bias), the same for the reference, which does not know auto_pad here, and the shape of x."""
    image, kernel, attributes = CASES[name]
    shape = tuple(int(size) for size in image.split(", "))
    sizes = ", ".join("NCDHW"[: len(shape)])
    text = f"g (float[{image}] x) => (float[{sizes}] y) {{ c = Conv<{attributes}>(x, w, b) y = Relu(c) }}"
    constants = {"w": floats(channels, shape[1], *kernel) / 24, "b": floats(channels)}
    return parse(text, **constants), parse(text.replace(', auto_pad = "VALID"', ""), **constants), shape


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_phase_of_the_pixels_is_computed(name: str, threads: int, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSpace, "default", lambda space: ConvolutionAlgorithm(space._refusal() is None))
    model, written_out, shape = model_of(name)
    assert any(task.symbol.startswith("winograd") for task in tasks(compile_graph(model, target).program))
    feeds = {"x": floats(*shape)}
    assert_same(run(model, feeds, target=target, num_threads=threads), by_definition(written_out, feeds))


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "winograd"),
    [
        ("1, 64, 33, 33", (64, 64, 3, 3), "pads = [2, 2, 2, 2],", True),
        ("1, 256, 64", (256, 256, 3), "pads = [2, 2],", True),
        ("1, 64, 33, 33", (64, 1, 3, 3), "group = 64,", False),
        ("1, 64, 33, 33", (64, 64, 3, 3), "strides = [2, 2],", False),
        ("16, 64, 7, 7", (64, 64, 3, 3), "", False),
    ],
    ids=["an image", "a line", "groups", "steps", "phases that fill few tiles"],
)
def test_it_is_taken_where_it_saves_products(image: str, weights: tuple[int, ...], attributes: str, winograd: bool) -> None:
    size = "2, 2" if len(weights) == 4 else "2"
    text = f"g (float[{image}] x) => (float[{'N, C, H, W' if len(weights) == 4 else 'N, C, L'}] y)"
    model = parse(f"{text} {{ y = Conv<{attributes} dilations = [{size}]>(x, w) }}", w=floats(*weights))
    assert any(task.symbol.startswith("winograd") for task in tasks(compile_graph(model).program)) is winograd


def compiled(target: Target = AVX512, storage: DType | None = None, switched_off: frozenset[str] = frozenset()) -> Compiled:
    text = "g (float[1, 64, 33, 33] x) => (float[N, C, H, W] y) { y = Conv<dilations = [2, 2], pads = [2, 2, 2, 2]>(x, w) }"
    graph = upgrade_model(ir.from_proto(parse(text, w=floats(64, 64, 3, 3))))
    (shapes,) = gear_shapes(graph.graph, ())
    return GraphCompiler(target, GrowingConstants(), storage, switched_off).compile(graph, input_specs(graph.graph, shapes))


def applied(made: Compiled) -> bool:
    return any(symbol.startswith("winograd") for symbol in made.kernels)


def test_it_is_left_where_winograd_is_not_taken() -> None:
    assert applied(compiled(storage=dtypes.bfloat16))
    assert not applied(compiled(switched_off=frozenset({"winograd"})))
    assert applied(compiled(by_name("avx2")))
    pairs = replace(AVX512, features=f"{AVX512.features},+avx512bf16")
    assert not applied(compiled(pairs, storage=dtypes.bfloat16))
