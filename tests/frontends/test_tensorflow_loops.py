"""While loops of TensorFlow: frames of TensorFlow 1, functions of TensorFlow 2, and the lists of tensors that they fill."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anycann.frontends.tensorflow.load import load_frozen_graph
from anycann.session import InferenceSession
from anycann.support.errors import ModelError, UnsupportedError
from tests.frontends.tensorflow_graphs import GraphDef

FLOAT = np.dtype(np.float32)


def run(graph: GraphDef, outputs: list[str], **feeds: np.ndarray) -> list[np.ndarray]:
    return InferenceSession(load_frozen_graph(graph.content(), outputs=outputs)).run(None, feeds)


def frame(
    graph: GraphDef, name: str, variables: list[str], condition: Callable[[list[str]], str], body: Callable[[list[str]], list[str]]
) -> None:
    """The nodes that tf.while_loop writes: `name`/Exit_0, `name`/Exit_1, ... are the results."""
    for number, value in enumerate(variables):
        graph.node("Enter", value, name=f"{name}/Enter_{number}", frame_name=name)
        graph.node("Merge", f"{name}/Enter_{number}", f"{name}/Next_{number}", name=f"{name}/Merge_{number}")
    graph.node("LoopCond", condition([f"{name}/Merge_{number}" for number in range(len(variables))]), name=f"{name}/LoopCond")
    for number in range(len(variables)):
        graph.node("Switch", f"{name}/Merge_{number}", f"{name}/LoopCond", name=f"{name}/Switch_{number}")
        graph.node("Identity", f"{name}/Switch_{number}:1", name=f"{name}/Identity_{number}")
        graph.node("Exit", f"{name}/Switch_{number}", name=f"{name}/Exit_{number}")
    for number, value in enumerate(body([f"{name}/Identity_{number}" for number in range(len(variables))])):
        graph.node("NextIteration", value, name=f"{name}/Next_{number}")


def counting(graph: GraphDef, turns: int) -> Callable[[list[str]], str]:
    graph.constant("one", 1, np.int32)
    graph.constant("turns", turns, np.int32)
    return lambda merged: graph.node("Less", merged[0], "turns", name="less")


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_a_frame_that_counts(turns: int) -> None:
    graph = GraphDef()
    graph.placeholder("x", (3,))
    graph.constant("zero", 0, np.int32)
    less = counting(graph, turns)
    body = lambda now: [graph.node("AddV2", now[0], "one", name="next"), graph.node("Add", now[1], now[1], name="twice")]  # noqa: E731
    frame(graph, "loop", ["zero", "x"], less, body)
    x = np.array([1, 2, 3], np.float32)
    results = run(graph, ["loop/Exit_0", "loop/Exit_1"], x=x)
    assert int(results[0]) == turns
    np.testing.assert_array_equal(results[1], x * 2**turns)
    (loop,) = (node for node in load_frozen_graph(graph.content()).graph if node.op_type == "Loop")
    trips = loop.inputs[0]
    assert trips is not None
    assert trips.const_value is not None
    assert int(trips.const_value.numpy()) == turns


def test_a_frame_whose_condition_is_computed_and_whose_variable_grows() -> None:
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.constant("limit", 7.0)
    graph.constant("axis", 0, np.int32)
    graph.constant("all", [0], np.int32)

    def body(now: list[str]) -> list[str]:
        return [graph.node("ConcatV2", now[0], now[0], "axis", name="grown")]

    def condition(merged: list[str]) -> str:
        return graph.node("Less", graph.node("Sum", merged[0], "all", name="sum"), "limit", name="less")

    frame(graph, "loop", ["x"], condition, body)
    for x, times in (([1, 1], 4), ([3, 4], 1), ([0, 1], 8)):
        np.testing.assert_array_equal(run(graph, ["loop/Exit_0"], x=np.array(x, np.float32))[0], np.tile(x, times))


@pytest.mark.parametrize("turns", [0, 2])
def test_the_shape_of_a_result_is_that_before_the_first_turn_too(turns: int) -> None:
    graph = GraphDef()
    graph.placeholder("x", (None,))
    graph.placeholder("n", (), np.int32)
    for name, number in (("zero", 0), ("one", 1)):
        graph.constant(name, number, np.int32)
    graph.constant("five", range(5))
    graph.node("Enter", "n", name="loop/n", frame_name="loop", is_constant=True)
    body = lambda now: [graph.node("AddV2", now[0], "one", name="next"), graph.node("Identity", "five", name="same")]  # noqa: E731
    frame(graph, "loop", ["zero", "x"], lambda merged: graph.node("Less", merged[0], "loop/n", name="less"), body)
    graph.node("Shape", "loop/Exit_1", name="sizes")
    assert run(graph, ["sizes"], x=np.ones(3, np.float32), n=np.array(turns, np.int32))[0].tolist() == [5 if turns else 3]


@pytest.mark.parametrize("turns", [0, 3])
def test_a_list_of_one_holds_what_the_last_turn_wrote(turns: int) -> None:
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.placeholder("n", (), np.int32)
    graph.constant("zero", 0, np.int32)
    graph.constant("one", 1, np.int32)
    graph.node("TensorArrayV3", "one", name="made", dtype=FLOAT)
    for name in ("x", "n", "made"):
        graph.node("Enter", name, name=f"loop/{name}", frame_name="loop", is_constant=True)

    def body(now: list[str]) -> list[str]:
        graph.node("Mul", "loop/x", graph.node("Cast", now[0], name="factor", DstT=FLOAT), name="item")
        graph.node("TensorArrayWriteV3", "loop/made", "zero", "item", now[1], name="written")
        return [graph.node("AddV2", now[0], "one", name="next"), "written"]

    frame(graph, "loop", ["zero", "made:1"], lambda merged: graph.node("Less", merged[0], "loop/n", name="less"), body)
    graph.node("Range", "zero", "one", "one", name="places")
    graph.node("TensorArrayGatherV3", "made", "places", "loop/Exit_1", name="y", dtype=FLOAT)
    x = np.array([1, 2], np.float32)
    assert run(graph, ["y"], x=x, n=np.array(turns, np.int32))[0].tolist() == [(x * max(turns - 1, 0)).tolist()]


def test_a_turn_writes_to_a_list_on_one_side_of_a_condition() -> None:
    graph = GraphDef()
    graph.placeholder("x", (4, 2))
    graph.constant("zero", 0, np.int32)
    graph.constant("two", 2, np.int32)
    less = counting(graph, 4)
    graph.node("TensorArrayV3", "turns", name="made", dtype=FLOAT, element_shape=graph.shape((2,)))
    entering = lambda value: graph.node("Enter", value, name=f"loop/{value}", frame_name="loop", is_constant=True)  # noqa: E731

    def body(now: list[str]) -> list[str]:
        graph.node("Less", now[0], "two", name="early")
        graph.node("Switch", now[1], "early", name="sides")
        graph.node("GatherV2", entering("x"), now[0], "zero", name="item")
        graph.node("TensorArrayWriteV3", entering("made"), now[0], "item", "sides:1", name="written")
        return [graph.node("AddV2", now[0], "one", name="next"), graph.node("Merge", "sides", "written", name="merged")]

    frame(graph, "loop", ["zero", "made:1"], less, body)
    graph.node("Range", "zero", "turns", "one", name="places")
    graph.node("TensorArrayGatherV3", "made", "places", "loop/Exit_1", name="y", dtype=FLOAT)
    x = np.random.default_rng().standard_normal((4, 2)).astype(np.float32)
    np.testing.assert_array_equal(run(graph, ["y"], x=x)[0], np.concatenate([x[:2], np.zeros((2, 2), np.float32)]))


@pytest.mark.parametrize(("turns", "backwards"), [(5, False), (3, False), (0, False), (5, True)])
def test_a_tensor_array_that_a_frame_reads_and_fills(turns: int, backwards: bool) -> None:
    """What no turn wrote is zero; an order that is not that of the turns is served too where the shape of an item is known."""
    graph = GraphDef()
    graph.placeholder("x", (5, 2))
    graph.constant("zero", 0, np.int32)
    graph.constant("five", 5, np.int32)
    graph.constant("four", 4, np.int32)
    less = counting(graph, turns)
    graph.node("Range", "zero", "five", "one", name="places")
    entering = lambda value: graph.node("Enter", value, name=f"loop/{value}", frame_name="loop", is_constant=True)  # noqa: E731
    given = graph.node("TensorArrayV3", "five", name="given", dtype=FLOAT)
    graph.node("TensorArrayScatterV3", given, "places", "x", "given:1", name="scattered")
    graph.node("TensorArrayV3", "five", name="made", dtype=FLOAT, **({"element_shape": graph.shape((2,))} if backwards else {}))

    def body(now: list[str]) -> list[str]:
        graph.node("TensorArrayReadV3", entering("given"), now[0], entering("scattered"), name="item")
        graph.node("Neg", "item", name="negative")
        place = graph.node("Sub", "four", now[0], name="place") if backwards else now[0]
        graph.node("TensorArrayWriteV3", entering("made"), place, "negative", now[1], name="written")
        return [graph.node("AddV2", now[0], "one", name="next"), "written"]

    frame(graph, "loop", ["zero", "made:1"], less, body)
    graph.node("TensorArrayGatherV3", "made", "places", "loop/Exit_1", name="y", dtype=FLOAT)
    graph.node("TensorArraySizeV3", "made", "loop/Exit_1", name="size")
    x = np.random.default_rng().standard_normal((5, 2)).astype(np.float32)
    y, size = run(graph, ["y", "size"], x=x)
    expected = np.concatenate([-x[:turns], np.zeros((5 - turns, 2), np.float32)])
    np.testing.assert_array_equal(y, expected[::-1] if backwards else expected)
    assert int(size) == 5


def test_a_while_of_functions_with_a_list_and_a_call(subtests: pytest.Subtests) -> None:
    for open_, count in ((False, 4), (True, 6)):
        with subtests.test(open=open_):
            graph = functions(open_)
            x = np.random.default_rng().standard_normal((count, 3)).astype(np.float32)
            y, last = run(graph, ["y", "while:3"], x=x)
            np.testing.assert_allclose(y, np.cumsum(x, 0), rtol=1e-6)
            np.testing.assert_allclose(last, x.sum(0), rtol=1e-6)


def functions(open_: bool) -> GraphDef:
    graph = GraphDef()
    arguments = ("i", "given", "made", "sum", "count")
    condition = graph.function("condition", arguments, {"go": "less:z:0"})
    condition.node("Less", "i", "count", name="less")
    body = graph.function(
        "body", arguments, {"a": "next:z:0", "b": "given", "c": "set:output_handle:0", "d": "kept:output:0", "e": "count"}
    )
    body.constant("one", 1, np.int32)
    body.node("AddV2", "i", "one:output:0", name="next")
    body.node("TensorListGetItem", "given", "i", "one:output:0", name="item", element_dtype=FLOAT)
    body.node("PartitionedCall", "sum", "item:item:0", name="total", f=graph.named("add"))
    body.node("Identity", "total:output:0", name="kept")
    body.node("TensorListSetItem", "made", "i", "kept:output:0", name="set", element_dtype=FLOAT)
    added = graph.function("add", ("a", "b"), {"sum": "plus:z:0"})
    added.node("AddV2", "a", "b", name="plus")
    graph.placeholder("x", (None, 3) if open_ else (4, 3))
    for name, value in (("zero", 0), ("one", 1)):
        graph.constant(name, value, np.int32)
    graph.constant("start", [0.0] * 3)
    graph.constant("item shape", [-1], np.int32)
    graph.constant("first", [0], np.int32)
    graph.constant("second", [1], np.int32)
    graph.node("Shape", "x", name="sizes")
    graph.node("StridedSlice", "sizes", "first", "second", "second", name="count", shrink_axis_mask=1)
    graph.node("TensorListFromTensor", "x", "item shape", name="list", element_dtype=FLOAT)
    graph.node("TensorListReserve", "item shape", "count", name="reserved", element_dtype=FLOAT)
    graph.node(
        "StatelessWhile",
        "zero",
        "list",
        "reserved",
        "start",
        "count",
        name="while",
        cond=graph.named("condition"),
        body=graph.named("body"),
    )
    graph.node("TensorListStack", "while:2", "item shape", name="y", element_dtype=FLOAT)
    return graph


@pytest.mark.parametrize("condition", [False, True])
def test_an_if_of_functions(condition: bool) -> None:
    graph = GraphDef()
    graph.function("yes", ("a",), {"y": "negative:y:0"}).node("Neg", "a", name="negative")
    graph.function("no", ("a",), {"y": "a"})
    graph.placeholder("c", (), bool)
    graph.placeholder("x", (2,))
    graph.node("StatelessIf", "c", "x", name="y", then_branch=graph.named("yes"), else_branch=graph.named("no"))
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(run(graph, ["y"], c=np.array(condition), x=x)[0], -x if condition else x)


def test_what_is_no_while_loop_or_has_no_function_is_told() -> None:
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.node("Enter", "x", name="loop/Enter", frame_name="loop")
    graph.node("Exit", "loop/Enter", name="loop/Exit")
    with pytest.raises(ModelError, match=r"node 'loop/Enter' \(Enter\) begins a frame without a condition"):
        load_frozen_graph(graph.content())
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.node("PartitionedCall", "x", name="y", f=graph.named("nowhere"))
    with pytest.raises(UnsupportedError, match="its function 'nowhere' is not in the file"):
        load_frozen_graph(graph.content())
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.function("f", ("a",), {"y": "b:y:0"}).node("Unheard", "a", name="b")
    graph.node("PartitionedCall", "x", name="y", f=graph.named("f"))
    with pytest.raises(UnsupportedError, match=r"Unheard \(1, the first is 'b'\)"):
        load_frozen_graph(graph.content())
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.function("f", ("a",), {"y": "b:output:0"}).node("PartitionedCall", "a", name="b", f=graph.named("f"))
    graph.node("PartitionedCall", "x", name="y", f=graph.named("f"))
    with pytest.raises(ModelError, match="calls itself without end"):
        load_frozen_graph(graph.content())


def test_results_of_functions_are_named_as_operators_name_them() -> None:
    graph = GraphDef()
    graph.placeholder("x", (2, 3, 3, 4))
    function = graph.function("f", ("a",), {"mean": "norm:batch_mean:0", "second": "norm:batch_variance:0"})
    for name, value in (("scale", 1), ("offset", 0), ("mean", 2), ("variance", 3)):
        function.constant(name, [value] * 4)
    function.node("FusedBatchNormV3", "a", *(f"{name}:output:0" for name in ("scale", "offset", "mean", "variance")), name="norm",
                  is_training=False, epsilon=0.001)  # fmt: skip
    graph.node("PartitionedCall", "x", name="y", f=graph.named("f"))
    results = run(graph, ["y", "y:1"], x=np.ones((2, 3, 3, 4), np.float32))
    assert [result.tolist() for result in results] == [[2] * 4, [3] * 4]
