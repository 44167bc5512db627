"""A node that is kept ready for the host gives what evaluating it gives, for every operator, in values and in errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper
import onnx_ir as ir
import pytest

from anycann.graph.evaluate import evaluate_node
from anycann.graph.prepared import PreparedNode
from anycann.graph.registry import OPSET, Operator
from anycann.support.errors import AnyCANNError, ModelError
from tests.ops.operator_runner import build_node
from tests.ops.test_every_operator import operators, samples, title

VECTOR = np.arange(6, dtype=np.int64)
MOVES = {  # operators that a loop's body runs on the host, and operands they take
    "Slice": (np.ones((3, 9), np.float32), np.array([2]), np.array([7]), np.array([1]), np.array([2])),
    "Shape": (np.ones((3, 0, 9), np.float32),),
    "Reshape": (np.ones((3, 4, 5), np.float32), np.array([0, -1])),
    "Range": (np.array(2), np.array(9), np.array(3)),
    "Expand": (np.ones((3, 1), np.float32), np.array([2, 3, 5])),
    "Tile": (VECTOR, np.array([3])),
    "NonZero": (VECTOR,),
    "ReduceSum": (VECTOR,),
    "Transpose": (np.ones((3, 4, 5), np.float32),),
    "Unsqueeze": (np.ones((3, 4), np.float32), np.array([-1, 1])),
}


def assert_same(got: Sequence[object], want: Sequence[object]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(a, b)  # type: ignore[arg-type]
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


def outcome(run: Callable[..., Sequence[object]], *arguments: object) -> Sequence[object]:
    """What `run` gives, or the text of the error."""
    try:
        return run(*arguments)
    except AnyCANNError as error:
        return [str(error)]


@pytest.mark.parametrize("operator", operators(), ids=title)
def test_a_prepared_node_gives_what_evaluating_it_gives(operator: Operator) -> None:
    for sample in list(samples(operator))[:4]:
        node = ir.to_proto(build_node(operator, sample))
        assert isinstance(node, onnx.NodeProto)
        operands = list(sample.operands)
        want = outcome(evaluate_node, node, OPSET, operands)
        prepared = PreparedNode(node, OPSET)
        for _ in range(2):
            assert_same(outcome(lambda: prepared(operands)), want)  # noqa: B023


@pytest.mark.parametrize("op_type", MOVES)
def test_what_moves_numbers_about_is_computed_without_an_evaluator(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node(op_type, [f"x{n}" for n in range(len(MOVES[op_type]))], ["y"])
    want = evaluate_node(node, OPSET, MOVES[op_type])
    prepared = PreparedNode(node, OPSET)

    def refuse(*_: object) -> None:
        raise AssertionError("evaluated anew")

    monkeypatch.setattr("anycann.graph.prepared.evaluate_node", refuse)
    assert_same(prepared(MOVES[op_type]), want)


@pytest.mark.parametrize("axes", [[0], [-1], [2, 0], [-3, 3], [1, 1], [4], [-5], [], [0, 4], [-1, 3]], ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()], ids=str)
def test_axes_are_put_where_the_reference_puts_them(shape: tuple[int, ...], axes: list[int]) -> None:
    node, data = helper.make_node("Unsqueeze", ["x", "axes"], ["y"]), np.zeros(shape, np.float32)
    assert_same(
        outcome(PreparedNode(node, OPSET), (data, np.array(axes, np.int64))),
        outcome(evaluate_node, node, OPSET, (data, np.array(axes, np.int64))),
    )


@pytest.mark.parametrize("perm", [None, [0, 1, 2], [2, 0, 1], [1, 0], [0, 0, 1], [0, 1, 3]], ids=str)
def test_axes_are_turned_as_the_reference_turns_them(perm: list[int] | None) -> None:
    node, data = helper.make_node("Transpose", ["x"], ["y"], perm=perm), np.arange(24).reshape(2, 3, 4)
    assert_same(outcome(PreparedNode(node, OPSET), (data,)), outcome(evaluate_node, node, OPSET, (data,)))


@pytest.mark.parametrize("axis", [0, 1, -1, 2], ids=str)
@pytest.mark.parametrize("shapes", [[(2, 3), (2, 3)], [(2, 0), (2, 3)], [(2, 3)], [(2, 3), (4, 3)], [(2, 3), (3,)], [(), ()]], ids=str)
def test_what_is_joined_is_as_the_reference_joins_it(shapes: list[tuple[int, ...]], axis: int) -> None:
    node = helper.make_node("Concat", [f"x{n}" for n in range(len(shapes))], ["y"], axis=axis)
    operands = [np.full(shape, number, np.float32) for number, shape in enumerate(shapes)]
    assert_same(outcome(PreparedNode(node, OPSET), operands), outcome(evaluate_node, node, OPSET, operands))


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [
        ("Slice", (VECTOR, np.array([-1]), np.array([np.iinfo(np.int64).min]), np.array([0]), np.array([-2]))),
        ("Slice", (VECTOR.reshape(2, 3), np.array([1]), np.array([9]))),
        ("Slice", (VECTOR.reshape(2, 3), np.array([0, 1]), np.array([1, 2]), np.array([1, -1]))),
        ("Slice", (VECTOR.reshape(2, 3), np.array(1), np.array(2))),
        ("Slice", (VECTOR.reshape(2, 3), np.array([0]), np.array([1]), np.array([2]))),
        ("Slice", (VECTOR.reshape(2, 3), np.array([0]), np.array([1]), np.array([1]), np.array([0]))),
        ("Slice", (VECTOR, np.array([4]), np.array([2]))),
        ("Expand", (VECTOR.reshape(2, 3), np.array([1, 1]))),
        ("Expand", (VECTOR.reshape(1, 2, 3), np.array([3]))),
        ("Expand", (np.array(True), np.array([0, 2]))),
        ("Expand", (VECTOR, np.array([5]))),
        ("Expand", (VECTOR, np.array([], np.int64))),
        ("Expand", (VECTOR, np.array([-6]))),
        ("Reshape", (VECTOR, np.array([], np.int64))),
        ("Reshape", (VECTOR[:1], np.array([], np.int64))),
        ("Reshape", (VECTOR.reshape(2, 3).T, np.array([0, 0]))),
        ("Reshape", (VECTOR, np.array([2, 0]))),
        ("Reshape", (VECTOR[:0], np.array([0, 3]))),
        ("Reshape", (np.ones((3, 0), np.float32), np.array([0, -1]))),
    ],
    ids=str,
)
def test_edges_of_what_the_host_moves_are_as_onnx_says(op_type: str, operands: tuple[np.ndarray, ...]) -> None:
    node = helper.make_node(op_type, [f"x{n}" for n in range(len(operands))], ["y"])
    assert_same(outcome(PreparedNode(node, OPSET), operands), outcome(evaluate_node, node, OPSET, operands))


def test_operands_a_prepared_node_cannot_take_are_refused_in_the_same_words() -> None:
    node = helper.make_node("Tile", ["x", "n"], ["y"], name="again")
    prepared = PreparedNode(node, OPSET)
    for operands in ((VECTOR, np.array([-1])), (VECTOR,)):
        with pytest.raises(ModelError) as want:
            evaluate_node(node, OPSET, operands)
        with pytest.raises(ModelError) as got:
            prepared(operands)
        assert str(got.value) == str(want.value)
    assert_same(prepared((VECTOR, np.array([2]))), [np.tile(VECTOR, 2)])


def test_a_prepared_branch_sees_what_it_captures() -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["outer"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 7, None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    assert_same(PreparedNode(node, OPSET)([np.array(True)], {"outer": VECTOR}), [-VECTOR])


def test_an_output_without_a_name_is_not_given() -> None:
    node = helper.make_node("MaxPool", ["x"], ["", "i"], kernel_shape=[2])
    first, second = PreparedNode(node, OPSET)([np.ones((1, 1, 4), np.float32)])
    assert first is None
    assert isinstance(second, np.ndarray)
    assert second.shape == (1, 1, 3)
