"""Lists that loops append to, stacked behind them: values of each turn instead, with the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.om.plan import HostStep, RegionStep
from tests.passes.graphs import assert_same, compile_graph, floats, parse, run

TURN = "d = Identity(c) p = Neg(x) h = Add(p, one) m = SequenceInsert(l, VALUE)"
ONE = np.float32(1)


def appending(after: str, outputs: str, value: str = "h", turn: str = TURN) -> onnx.ModelProto:
    """x goes through `turn` n times, which appends `value` to the list s; `after` is what is made of it."""
    body = f"b (int64 i, bool c, float[2,3] x, seq(float[2,3]) l) => (bool d, float[2,3] h, seq(float[2,3]) m) {{ {turn} }}"
    loop = f"e = SequenceEmpty() y, s = Loop <body = {body.replace('VALUE', value)}> (n, yes, x, e)"
    return parse(f"g (float[2,3] x, int64 n) => (float[2,3] y, {outputs}) {{ {loop} {after} }}", one=ONE, yes=np.array(True))


def turns(x: np.ndarray, count: int) -> list[np.ndarray]:
    """The values of h, turn by turn."""
    found = [x]
    for _ in range(count):
        found.append(ONE - found[-1])
    return found[1:]


def host_nodes(model: onnx.ModelProto) -> list[str]:
    """What the program leaves to the host beside its regions."""
    return [step.op_type for step in compile_graph(model).program.steps if isinstance(step, HostStep)]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_stacked_list_is_stacked_values(axis: int) -> None:
    part = "v = Identity(h) " if axis else ""
    turn = f"{TURN.replace('m =', part + 'm =')}"
    model = appending(f"z = ConcatFromSequence<axis={axis}, new_axis=1>(s)", "float[A,B,C] z", "v" if axis else "h", turn)
    inner = next(a.g for node in model.graph.node if node.op_type == "Loop" for a in node.attribute)
    inner.value_info.append(onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [2, 3]))
    x = floats(2, 3)
    for count in (1, 4):
        states = turns(x, count)
        assert_same(run(model, {"x": x, "n": np.array(count)}), [states[-1], np.stack(states, axis)])
    assert host_nodes(model) == []


def test_what_is_appended_may_come_from_outside_or_be_what_came_in() -> None:
    for value, want in (("x", [floats(2, 3), ONE - floats(2, 3)]), ("one_more", [floats(2, 3, seed=5)] * 2)):
        model = appending("z = ConcatFromSequence<axis=0, new_axis=1>(s)", "float[A,B,C] z", value)
        model.graph.initializer.append(onnx.numpy_helper.from_array(floats(2, 3, seed=5), "one_more"))
        (_, got) = run(model, {"x": floats(2, 3), "n": np.array(2)})
        assert_same([got], [np.stack(want)])


@pytest.mark.parametrize(
    ("after", "want"),
    [
        ("z = ConcatFromSequence<axis=0>(s)", np.concatenate(turns(floats(2, 3), 3))),  # parts may be of different sizes
        ("z = ConcatFromSequence<axis=0, new_axis=1>(s) k = SequenceLength(s)", np.stack(turns(floats(2, 3), 3))),
    ],
)
def test_a_list_that_is_read_otherwise_stays_one(after: str, want: np.ndarray) -> None:
    outputs = "float[A,B] z" if want.ndim == 2 else "float[A,B,C] z, int64 k"
    model = appending(after, outputs)
    (step,) = [step for step in compile_graph(model).program.steps if isinstance(step, RegionStep) and step.kind == "loop"]
    assert len(step.inputs) == 4  # the trip count, the condition, x and the list
    assert_same(run(model, {"x": floats(2, 3), "n": np.array(3)})[1:2], [want])


def test_a_list_of_which_a_turn_reads_the_length_stays_one() -> None:
    turn = TURN.replace("h = Add(p, one)", "k = SequenceLength(l) f = Cast<to=1>(k) h = Add(p, f)")
    model = appending("z = ConcatFromSequence<axis=0, new_axis=1>(s)", "float[A,B,C] z", turn=turn)
    x = floats(2, 3)
    assert_same(run(model, {"x": x, "n": np.array(3)})[1:], [np.stack([-x, x + 1, 1 - x])])


@pytest.mark.parametrize(("name", "copy"), [("q", "q = Identity(m)"), ("m", "")])
def test_a_list_that_is_handed_on_in_two_places_stays_one(name: str, copy: str) -> None:
    turn = f"{TURN.replace('VALUE', 'h')} {copy}"
    results = f"bool d, float[2,3] h, seq(float[2,3]) m, seq(float[2,3]) {name}"
    body = f"b (int64 i, bool c, float[2,3] x, seq(float[2,3]) l, seq(float[2,3]) k) => ({results}) {{ {turn} }}"
    loop = f"e = SequenceEmpty() y, s, t = Loop <body = {body}> (n, yes, x, e, e)"
    after = "z = ConcatFromSequence<axis=0, new_axis=1>(s) w = ConcatFromSequence<axis=1, new_axis=1>(t)"
    outputs = "float[2,3] y, float[A,B,C] z, float[D,E,F] w"
    model = parse(f"g (float[2,3] x, int64 n) => ({outputs}) {{ {loop} {after} }}", one=ONE, yes=np.array(True))
    states = turns(floats(2, 3), 3)
    got = run(model, {"x": floats(2, 3), "n": np.array(3)})
    assert_same(got, [states[-1], np.stack(states), np.stack(states, 1)])
