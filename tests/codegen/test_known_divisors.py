"""A division by a number that is known while compiling, beside numpy's division."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.known_divisors import inverse
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.objects import emit_assembly
from anycann.codegen.operations import emit_op
from anycann.codegen.values import vector_type
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from tests.codegen.kernels.jit import Compiled, runnable

COUNT = 1 << 18
ELEMENTS = {"float32": "float", "float64": "double"}
FUSED = [target for target in runnable() if target.has("fma")]


def quotients(values: np.ndarray, divisor: float, target: Target) -> np.ndarray:
    """By vectors of the target; `values` is a multiple of them long."""
    e, kind, lanes = Emitter(fuses=True), dtypes.BY_NAME[values.dtype.name], target.lanes
    source, to = e.argument(0), e.argument(1)
    quotient = x.Op("div", (x.Var("a", 1, kind), x.const(divisor, kind)), kind)
    with e.loop(e.begin, e.end) as loop:
        at = e.mul(loop.index, lanes)
        value = e.load(e.gep(source, at, kind.storage), vector_type(kind.storage, lanes), kind.nbytes)
        e.store(emit_op(e, quotient, [value, e.const(divisor, value.type)]), e.gep(to, at, kind.storage), kind.nbytes)
    result = np.full_like(values, 123)
    Compiled(e, "quotients", target)([values, result], len(values) // lanes)
    return result


def divisors(name: str, rng: np.random.Generator) -> list[float]:
    drawn = [6.0, 49.0, -3.0, np.sqrt(2), *rng.uniform(0.001, 1, 4), *(10 ** rng.uniform(-20, 20, 4))]
    return [float(np.asarray(divisor, name)) for divisor in drawn]


@pytest.mark.parametrize("target", FUSED, ids=lambda target: target.name)
@pytest.mark.parametrize("name", ELEMENTS)
def test_quotients_are_the_nearest_numbers(name: str, target: Target) -> None:
    rng = np.random.default_rng()
    for divisor in divisors(name, rng):
        values = (rng.standard_normal(COUNT) * 10 ** rng.uniform(-6, 6, COUNT)).astype(name)
        got, right = quotients(values, divisor, target), values / np.asarray(divisor, name)
        wrong = np.flatnonzero(got != right)
        assert len(wrong) < 20, f"{len(wrong)} of {COUNT} quotients by {divisor}"
        for number in wrong:
            exact, unit = Fraction(float(values[number])) / Fraction(divisor), Fraction(float(np.spacing(abs(right[number]))))
            assert abs(Fraction(float(got[number])) - exact) < unit * Fraction(0.5 + 2**-20), f"{values[number]} / {divisor}"


@pytest.mark.parametrize("target", FUSED, ids=lambda target: target.name)
@pytest.mark.parametrize("name", ELEMENTS)
def test_quotients_that_are_numbers_are_exact(name: str, target: Target) -> None:
    rng = np.random.default_rng()
    for divisor in (3.0, 49.0, -6.0, 0.75, 1000.0, 25.5):
        right = rng.integers(-(2**14), 2**14, COUNT).astype(name) / 8
        np.testing.assert_array_equal(quotients(right * np.asarray(divisor, name), divisor, target), right)


@pytest.mark.parametrize("target", FUSED, ids=lambda target: target.name)
@pytest.mark.parametrize("name", ELEMENTS)
def test_the_ends_of_the_numbers_are_divided_as_by_a_division(name: str, target: Target) -> None:
    info = np.finfo(name)
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, 1.0, *[0.0] * 7], name)
    for divisor in (6.0, -6.0, 0.3, -0.3, 1e-20, 1e20):
        with np.errstate(over="ignore", under="ignore"):
            right = values / np.asarray(divisor, name)
        got = quotients(values, divisor, target)
        near_zero = (np.abs(values) < info.tiny / info.eps**1.1) & (values != 0)  # what is left of them is denormal
        np.testing.assert_array_equal(got[~near_zero], right[~near_zero])
        np.testing.assert_allclose(got[near_zero], right[near_zero], rtol=1.01 * float(info.eps), atol=float(info.tiny))
        np.testing.assert_array_equal(np.signbit(got[:2]), np.signbit(right[:2]))


@pytest.mark.parametrize("name", ELEMENTS)
def test_an_inverse_is_two_numbers_of_one_sign(name: str) -> None:
    eps = Fraction(float(np.finfo(name).eps))
    for divisor in divisors(name, np.random.default_rng()):
        parts = inverse(divisor, ELEMENTS[name])
        assert parts is not None
        first, second = parts
        assert first * second > 0
        assert abs(Fraction(first) + Fraction(second) - 1 / Fraction(divisor)) < abs(1 / Fraction(divisor)) * eps**2
    for divisor in (8.0, -0.25, 0.0, float("inf"), float("nan"), 1e-40):
        assert inverse(divisor, ELEMENTS[name]) is None or (name, divisor) == ("float64", 1e-40)


@pytest.mark.parametrize("name", ["avx2", "avx512", "neon", "sse"])
def test_a_kernel_divides_where_it_has_no_fused_instruction(name: str) -> None:
    source = te.placeholder("x", (4096,), dtypes.float32)
    kernel = generate([Output("y", te.compute((4096,), lambda i: source[i] / x.const(6.0, dtypes.float32)))], {}, by_name(name))
    assembly = emit_assembly(kernel.ir, by_name(name))
    assert ("div" in assembly) == (name == "sse")
    assert "fmaf" not in assembly
