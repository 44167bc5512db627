"""An If that only running can decide: what follows it is compiled with it where both branches give the same type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, compile_graph, floats, parse, run, steps


def branching(then: str, other: str) -> str:
    branches = f"then_branch = t () => (float[N] p) {{ {then} }}, else_branch = e () => (float[N] p) {{ {other} }}"
    return f"g (float[4] x, bool c) => (float[M] y) {{ a = Exp(x) b = If (c) <{branches}> y = Neg(b) }}"


@pytest.mark.parametrize(
    ("then", "other", "expected"),
    [
        ("p = Abs(a)", "s = Shape(x) z = ConstantOfShape(s) p = Add(z, a)", "native(1) if native(1)"),
        ("p = Abs(a)", "p = Concat<axis=0>(a, a)", "native(1) if deferred"),
        # the second is made for another shape of x: it can only fail, if it is ever taken
        ("p = Abs(a)", "p = MatMul(w, a)", "native(1) if deferred"),
    ],
)
def test_what_follows_an_if_waits_only_if_its_branches_differ(then: str, other: str, expected: str) -> None:
    model = parse(branching(then, other), w=floats(5, 3))
    assert steps(compile_graph(model).program) == expected
    x = floats(4)
    assert_same(run(model, {"x": x, "c": np.array(True)}), [-np.exp(x)])
    if "MatMul" not in other:
        doubled = np.concatenate([np.exp(x)] * (2 if "Concat" in other else 1))
        assert_same(run(model, {"x": x, "c": np.array(False)}), [-doubled])


def test_looking_into_branches_leaves_no_readers_behind() -> None:
    model = parse(branching("p = Abs(a)", "p = Neg(a)").replace("y = Neg(b)", "u = Sqrt(x) y = Neg(b)"))
    program = compile_graph(model).program
    assert steps(program) == "native(1) if native(1)"
    assert [task.op_types for task in program.steps[0].tasks] == [("Exp",)]  # type: ignore[union-attr]
