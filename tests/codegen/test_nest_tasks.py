"""Into how many tasks a nest of loops is cut, and that every place is written whatever their number."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen.nest_kernel import Output
from anycann.codegen.recipe import Recipe
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te import tensor as te

LITTLE, MUCH = 16, 5000


@pytest.mark.parametrize(
    ("shape", "tasks"),
    [
        ((14, 4, 12, LITTLE), 56),
        ((14, 4, 120, MUCH), 112),  # two pieces of 60
        ((8, 4, 3, MUCH), 32),  # a loop of three is written out
        ((2, 3, 157, LITTLE), 66),  # 11 pieces of 15, the last of 7
        ((2, 3, 5, LITTLE), 6),  # not much in all
        ((1000, 3, 5, LITTLE), 1000),  # a first loop is never cut: its place costs nothing
    ],
)
def test_tasks_are_enough_for_threads_but_not_thousands_of_little_work(shape: tuple[int, ...], tasks: int) -> None:
    x = te.placeholder("x", (*shape, 7), dtypes.float32)
    total = te.reduce("sum", shape, (7,), lambda *i: x[i])
    # a row for each place of an outer loop keeps these loops apart
    rows = [te.placeholder(f"row{n}", (shape[n], shape[-1]), dtypes.float32) for n in range(3)]
    result = te.compute(shape, lambda a, b, c, d: total[a, b, c, d] + rows[0][a, d] + rows[1][b, d] + rows[2][c, d])
    kernel = Recipe((Output("y", result),), {}, by_name("avx512")).generate(lambda name: None).kernel
    assert kernel.tasks == tasks


def transposing(shape: tuple[int, ...], order: tuple[int, ...]) -> onnx.ModelProto:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    node = onnx.helper.make_node("Transpose", ["x"], ["y"], perm=order)
    graph = onnx.helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("target", ["host", "avx2", "sse"])
@pytest.mark.parametrize(
    ("shape", "order"),
    [((157, 2, 3, 37), (2, 1, 0, 3)), ((5, 131, 7, 9), (2, 1, 0, 3)), ((3, 41, 97, 5), (1, 2, 3, 0)), ((61, 5, 7, 13), (1, 0, 3, 2))],
)
def test_pieces_of_a_loop_make_the_whole(shape: tuple[int, ...], order: tuple[int, ...], target: str, threads: int) -> None:
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    session = InferenceSession(transposing(shape, order), SessionOptions(target=by_name(target), num_threads=threads, poison=True))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.transpose(order))
