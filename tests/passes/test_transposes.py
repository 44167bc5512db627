"""Transposes that undo one another go, and products read through those of their operands."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import floats, parse, run, told


def of_transposes(text: str, report: str = "rules") -> tuple[str, ...]:
    return tuple(line for line in told(parse(text), report) if "Transpose" in line)


@pytest.mark.parametrize(
    ("left", "right", "nodes"),
    [
        ("3,5", "3,7", "t = Transpose<perm=[1, 0]>(a) y = MatMul(t, b)"),
        ("5,3", "7,3", "t = Transpose<perm=[1, 0]>(b) y = MatMul(a, t)"),
        ("3,5", "7,3", "t = Transpose<perm=[1, 0]>(a) u = Transpose<perm=[1, 0]>(b) y = MatMul(t, u)"),
        ("5,3", "3,7", "t = Transpose<perm=[1, 0]>(a) y = com.microsoft.FusedMatMul<transA=1, alpha=0.5>(t, b)"),
        ("2,3,5", "2,3,7", "t = Transpose<perm=[0, 2, 1]>(a) y = MatMul(t, b)"),
    ],
)
def test_a_product_reads_through_the_transposes_of_its_operands(left: str, right: str, nodes: str) -> None:
    text = f"g (float[{left}] a, float[{right}] b) => (float[{'2,' * (left.count(',') - 1)}5,7] y) {{ {nodes} }}"
    assert of_transposes(text) == ("TransposedOperand applied to y",)
    feeds = {"a": floats(*map(int, left.split(","))), "b": floats(*map(int, right.split(",")))}
    a, b = (array.astype(np.float64) for array in feeds.values())
    a, b = (a if a.shape[-2] == 5 else a.swapaxes(-1, -2)), (b if b.shape[-1] == 7 else b.swapaxes(-1, -2))
    np.testing.assert_allclose(run(parse(text), feeds)[0], a @ b * (0.5 if "alpha" in nodes else 1), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "nodes", "line"),
    [
        ("3,5", "t = Transpose<perm=[1, 0]>(a) y = MatMul(t, b) z = Neg(t)", "the transpose is also used elsewhere"),
        ("5,3,2", "t = Transpose<perm=[2, 0, 1]>(a) y = MatMul(t, b) z = Neg(a)", "other axes than the last two are exchanged"),
    ],
)
def test_a_transpose_that_is_needed_stays(size: str, nodes: str, line: str) -> None:
    text = f"g (float[{size}] a, float[3,7] b) => (float[N,M] y, float[K,L] z) {{ {nodes} }}"
    if size.count(",") == 2:
        text = text.replace("float[N,M] y, float[K,L] z", "float[H,N,M] y, float[K,L,O] z")
    assert of_transposes(text) == (f"TransposedOperand skipped y: {line}",)


def test_two_transposes_that_undo_one_another_are_gone() -> None:
    text = "g (float[2,3,5] x) => (float[2,3,5] y) { e = Exp(x) t = Transpose<perm=[2, 0, 1]>(e) y = Transpose<perm=[1, 2, 0]>(t) }"
    assert of_transposes(text, "early rules") == ("TwoTransposes applied to y",)
    x = floats(2, 3, 5)
    np.testing.assert_allclose(run(parse(text), {"x": x})[0], np.exp(x), rtol=1e-5)


def test_two_other_transposes_stay() -> None:
    text = "g (float[2,3,5] x) => (float[3,5,2] y) { t = Transpose<perm=[2, 0, 1]>(x) y = Transpose<perm=[2, 0, 1]>(t) }"
    assert of_transposes(text, "early rules") == ("TwoTransposes skipped y: both together are no identity",)
