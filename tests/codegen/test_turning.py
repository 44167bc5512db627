"""Copies between axes of which one is short: every element lands where numpy puts it, by vectors that lie in order in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen.accesses import FlatNest, flatten
from anycann.codegen.axes import cut, joined
from anycann.codegen.interleaving import Interleaving, interleaving
from anycann.codegen.nest_kernel import Output
from anycann.codegen.recipe import Recipe
from anycann.codegen.transposing import Transposition
from anycann.codegen.turning import turning
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.layout import Place
from anycann.te.nest import build_nest

TYPES = {TensorProto.FLOAT: np.float32, TensorProto.UINT8: np.uint8, TensorProto.INT64: np.int64, TensorProto.FLOAT16: np.float16}


def nest_of(shape: Sequence[int], order: Sequence[int]) -> FlatNest:
    x = te.placeholder("x", tuple(shape), dtypes.float32)
    back = np.argsort(order)
    y = te.compute(tuple(shape[a] for a in order), lambda *i: x[tuple(i[int(a)] for a in back)])
    return flatten(build_nest([y]), [Place(y.shape)], {}, 16)


def model(
    op_type: str, shape: Sequence[int], type_: int = TensorProto.FLOAT, other: Sequence[int] = (), **attributes: Any
) -> onnx.ModelProto:
    """The operator, and of floats a sum with another tensor and a Relu behind it."""
    inputs = [helper.make_tensor_value_info("x", type_, shape)]
    nodes = [helper.make_node(op_type, ["x"], ["t"], **attributes)]
    if other:
        inputs.append(helper.make_tensor_value_info("z", type_, other))
        nodes += [helper.make_node("Add", ["t", "z"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    else:
        nodes.append(helper.make_node("Identity", ["t"], ["y"]))
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def run(made: onnx.ModelProto, target: str, feeds: dict[str, Any], threads: int = 1) -> Any:
    session = InferenceSession(made, SessionOptions(target=by_name(target), num_threads=threads, poison=True))
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("target", ["host", "avx2", "sse"])
@pytest.mark.parametrize("places", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("length", [1, 3, 15, 16, 17, 31, 160, 1601])
def test_few_vectors_are_interleaved(length: int, places: int, target: str) -> None:
    x = np.random.default_rng().standard_normal((places, length)).astype(np.float32)
    np.testing.assert_array_equal(run(model("Transpose", x.shape, perm=[1, 0]), target, {"x": x}), x.T)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("order", [(1, 2, 0), (2, 1, 0), (0, 2, 1), (2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize("shape", [(3, 37, 53), (37, 3, 53), (53, 37, 3), (2, 16, 16), (5, 7, 130), (100, 5, 7)])
@pytest.mark.parametrize("target", ["host", "avx2"])
def test_an_axis_that_is_short_is_turned_with_the_one_behind_it(
    shape: tuple[int, ...], order: tuple[int, ...], type_: int, target: str
) -> None:
    x = np.random.default_rng().integers(0, 200, shape).astype(TYPES[type_])
    np.testing.assert_array_equal(run(model("Transpose", shape, type_, perm=order), target, {"x": x}), x.transpose(order))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("block", [2, 3, 4, 5])
@pytest.mark.parametrize("size", [(1, 1), (9, 16), (20, 33)])
def test_pixels_out_of_channels_are_interleaved(size: tuple[int, int], block: int, mode: str, threads: int) -> None:
    x = np.random.default_rng().standard_normal((2, 3 * block * block, *size)).astype(np.float32)
    parts = (2, block, block, 3) if mode == "DCR" else (2, 3, block, block)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    wanted = x.reshape(*parts, *size).transpose(order).reshape(2, 3, size[0] * block, size[1] * block)
    got = run(model("DepthToSpace", x.shape, blocksize=block, mode=mode), "host", {"x": x}, threads)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("other", [(53, 37, 3), (53, 37, 1), (1, 37, 3), (3,), (53, 1, 1)])
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0)])
def test_what_is_computed_beside_is_read_where_it_lies(order: tuple[int, ...], other: tuple[int, ...]) -> None:
    x = np.random.default_rng().standard_normal((3, 37, 53)).astype(np.float32)
    turned = x.transpose(order)
    shape = tuple(size if size == 1 else turned.shape[len(turned.shape) - len(other) + n] for n, size in enumerate(other))
    z = np.random.default_rng().standard_normal(shape).astype(np.float32)
    got = run(model("Transpose", x.shape, other=shape, perm=order), "host", {"x": x, "z": z})
    np.testing.assert_array_equal(got, np.maximum(turned + z, 0))


def test_four_rows_are_interleaved_and_many_are_turned_by_squares() -> None:
    few, many = turning(nest_of((4, 840), (1, 0)), 16), turning(nest_of((84, 840), (1, 0)), 16)
    assert few is not None
    assert isinstance(few.plan, Interleaving)
    assert (few.plan.read.extent, few.plan.places.extent) == (840, 4)
    assert many is not None
    assert isinstance(many.plan, Transposition)
    assert interleaving(nest_of((4, 840), (0, 1)), 16) is None
    assert turning(nest_of((840, 4), (1, 0)), 16) is None  # reads of every fourth element


def test_a_short_axis_and_the_one_behind_it_are_one_in_memory() -> None:
    found = turning(nest_of((3, 100, 300), (2, 1, 0)), 16)
    assert found is not None
    assert isinstance(found.plan, Transposition)
    assert (found.plan.read.extent, found.plan.written.extent) == (300, 300)
    assert list(joined(nest_of((30, 100, 300), (2, 1, 0)), 8)) == []


def test_an_axis_is_cut_where_its_quotients_and_remainders_are_read() -> None:
    x = te.placeholder("x", (4, 40), dtypes.float32)
    y = te.compute((160,), lambda i: x[i % 4, i // 4])
    flat = flatten(build_nest([y]), [Place(y.shape)], {}, 16)
    parts = cut(flat)
    assert parts is not None
    assert [v.extent for v in parts.outer] == [40, 4]
    odd = te.compute((160,), lambda i: x[(i + 1) % 4, i // 4])
    assert cut(flatten(build_nest([odd]), [Place(odd.shape)], {}, 16)) is None
    assert Recipe((Output("y", y),), {}, by_name("avx512")).generate(lambda name: None).kernel.ir.count("scatter") == 0
