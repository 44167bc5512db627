"""Values a loop carries for nothing: used from outside or left out, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import pytest

from anycann.om.plan import RegionStep
from tests.passes.graphs import assert_same, compile_graph, floats, parse, run

WEIGHT = floats(3, 3)


def loop(carried: str, names: str, body: str, outputs: str, outer: str = "") -> onnx.ModelProto:
    """x goes through `body` n times; `carried`, `names`: what goes in beside it and what the body calls all of them."""
    text = f"{outer} {outputs} = Loop (n, , x, {carried}) <body = b (int64 i, bool c, {names}) => {body}>"
    return parse(f"g (float[2,3] x, int64 n) => (float[2,3] y, float[P,Q] z) {{ {text} }}", w=WEIGHT, v=WEIGHT + 1)


UNCHANGED = loop(
    "w", "float[2,3] a, float[3,3] k", "(bool d, float[2,3] b, float[3,3] m) { d = Identity(c) b = MatMul(a, k) m = Identity(k) }", "y, z"
)
SAME_VALUE = loop("w", "float[2,3] a, float[3,3] k", "(bool d, float[2,3] b, float[3,3] k) { d = Identity(c) b = MatMul(a, k) }", "y, z")
SHADOWED = loop(
    "w, v", "float[2,3] v, float[3,3] k, float[3,3] w",
    "(bool d, float[2,3] b, float[3,3] k, float[3,3] m) { d = Identity(c) b = MatMul(v, w) m = MatMul(w, k) }", "y, u, z",
)  # fmt: skip
HANDED_OVER = loop(
    "w, v", "float[2,3] a, float[3,3] k, float[3,3] l",
    "(bool d, float[2,3] b, float[3,3] k, float[3,3] m) { d = Identity(c) b = MatMul(a, l) m = Identity(k) }", "y, u, z",
)  # fmt: skip
IN_A_BRANCH = loop(
    "w", "float[2,3] a, float[3,3] k",
    "(bool d, float[2,3] b, float[3,3] k) { d = Identity(c) p = MatMul(a, k) s = ReduceSum<keepdims=0>(p) o = Less(s, one)"
    " b = If (o) <then_branch = t () => (float[2,3] q) { q = MatMul(p, k) }, else_branch = f () => (float[2,3] r) { r = Neg(p) }> }",
    "y, z", outer="one = Constant<value_float=1.0>()",
)  # fmt: skip
UNREAD = loop(
    "w", "float[2,3] a, float[3,3] k",
    "(bool d, float[2,3] b, float[3,3] m) { d = Identity(c) b = Neg(a) m = Exp(w) }", "y, u", outer="z = Identity(w)",
)  # fmt: skip


Values = tuple[np.ndarray, ...]


def branching(a: np.ndarray, k: np.ndarray, v: np.ndarray) -> Values:
    product = a @ k
    return product @ k if product.sum() < 1 else -product, k, v


@dataclass(frozen=True)
class Case:
    """A model, what a turn makes of (x, w, v), which of them is z in the end, and how many are still carried."""

    model: onnx.ModelProto
    turn: Callable[..., Values]
    z: int
    carried: int


CASES = {
    "unchanged": Case(UNCHANGED, lambda a, k, v: (a @ k, k, v), 1, 1),
    "the same value": Case(SAME_VALUE, lambda a, k, v: (a @ k, k, v), 1, 1),
    "one name inside and outside": Case(SHADOWED, lambda a, k, w: (a @ w, k, w @ k), 2, 2),
    "handed to another": Case(HANDED_OVER, lambda a, k, v: (a @ v, k, k), 2, 2),
    "in a branch": Case(IN_A_BRANCH, branching, 1, 1),
    "unread": Case(UNREAD, lambda a, k, v: (-a, k, v), 1, 1),
}


def loop_step(model: onnx.ModelProto) -> RegionStep:
    (step,) = [step for step in compile_graph(model).program.steps if isinstance(step, RegionStep)]
    return step


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_value_that_no_turn_changes_is_not_carried_and_no_number_changes(case: Case, turns: int) -> None:
    assert len(loop_step(case.model).inputs) == 2 + case.carried
    x = floats(2, 3, seed=1)
    values: Values = (x, WEIGHT, WEIGHT + 1)
    for _ in range(turns):
        values = case.turn(*values)
    for switched_off in ((), ("carried values",)):
        got = run(case.model, {"x": x, "n": np.array(turns)}, switched_off=frozenset(switched_off))
        assert_same(got, [values[0], values[case.z]])


def test_a_state_of_a_scan_that_stays_is_used_from_outside() -> None:
    body = "(float[3,3] k, float[3] s, float[3] one) => (float[3,3] k, float[3] t, float[3] u) { t = Add(s, one) u = MatMul(t, k) }"
    scan = f"m, e, y = Scan<num_scan_inputs=1, body = b {body}>(w, z, x)"
    start, x = floats(3), floats(4, 3, seed=1)
    model = parse(f"g (float[4,3] x) => (float[3,3] m, float[3] e, float[4,3] y) {{ {scan} }}", w=WEIGHT, z=start)
    assert loop_step(model).inputs == ("z", "x")
    sums = start + np.cumsum(x, axis=0)
    assert_same(run(model, {"x": x}), [WEIGHT, sums[-1], sums @ WEIGHT])


def test_a_weight_that_was_carried_is_known_while_the_body_is_compiled() -> None:
    step = loop_step(UNCHANGED)
    region = compile_graph(UNCHANGED).regions[step.regions[0]]
    assert step.captures == ((),)
    assert [v.name for v in region.graph.initializers.values()] == ["w"]
