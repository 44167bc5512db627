"""Every vector function against long double (or exact numpy) references: dense, random-bit and special arguments, error in ulp."""

from collections.abc import Callable
import math

import numpy as np
import pytest

from anycann.codegen import vector_math
from anycann.codegen.emitter import Emitter
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.objects import emit_assembly, emit_object, undefined_symbols
from anycann.codegen.values import vector_type
from anycann.codegen.vector_math_cells import CELLS
from anycann.support.errors import UnsupportedError
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te import expression as ex
from anycann.te import tensor as te
from tests.codegen.kernels.jit import Compiled, runnable

NUMPY = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
LONG = np.longdouble
exact_erf = np.vectorize(math.erf, otypes=[LONG])


def sigmoid(x: np.ndarray) -> np.ndarray:
    t = np.exp(-np.abs(x))
    return np.where(x < 0, t, LONG(1)) / (1 + t)


def tanh_of_softplus(x: np.ndarray) -> np.ndarray:
    t = np.exp(x)
    return t * (t + 2) / (t * (t + 2) + 2)


REFERENCE: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": exact_erf,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "fmax": np.maximum,
    "fmin": np.minimum,
    "log": np.log,
    "log1p": np.log1p,
    "pow": np.power,
    "reciprocal": lambda x: 1 / x,
    "round_half_even": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tanh_of_softplus": lambda x: np.where(x < 0, tanh_of_softplus(np.minimum(x, 0)), np.tanh(np.log1p(np.exp(np.minimum(x, 90))))),
    "trunc": np.trunc,
}
LIMIT_ULP = {
    **dict.fromkeys(("abs", "ceil", "floor", "round_half_even", "sign", "trunc", "fmin", "fmax"), 0.0),
    **dict.fromkeys(("sqrt", "reciprocal"), 0.51),
    **dict.fromkeys(("exp", "exp2", "log", "rsqrt", "cosh"), 1.6),
    **dict.fromkeys(("expm1", "log1p", "softplus", "sin", "cos", "acos"), 2.1),
    **dict.fromkeys(("tanh", "sigmoid", "sinh", "asinh", "acosh", "atanh", "asin", "atan"), 3.1),
    **dict.fromkeys(("tan", "erf", "tanh_of_softplus"), 4.0),
}


def build(name: str, element: str, lanes: int, operands: int, target: Target, flushes: bool = False) -> Emitter:
    """out[i] = f(in[i]...) for task i of `lanes` elements."""
    e = Emitter(scales=target.has("avx512f"), flushes=flushes)
    inputs, output = [e.argument(i) for i in range(operands)], e.argument(operands)
    size, type_ = NUMPY[element].itemsize, vector_type(element, lanes)
    with e.loop(e.begin, e.end) as loop:
        offset = e.mul(loop.index, lanes)
        values = [e.load(e.gep(p, offset, element), type_, size) for p in inputs]
        e.store({**vector_math.FUNCTIONS, **CELLS}[name](e, *values), e.gep(output, offset, element), size)
    return e


def compute(
    name: str, element: str, operands: list[np.ndarray], target_name: str = "host", lanes: int | None = None, flushes: bool = False
) -> np.ndarray:
    target = by_name(target_name)
    lanes = lanes or (target.lanes if element == "float" else max(1, target.lanes // 2))
    tasks = -(-operands[0].size // lanes)
    padded = [np.resize(x, tasks * lanes).astype(NUMPY[element]) for x in operands]
    output = np.full(tasks * lanes, -777, NUMPY[element])
    Compiled(build(name, element, lanes, len(operands), target, flushes), "math", target)([*padded, output], tasks)
    return output[: operands[0].size]


def specials(dtype: np.dtype) -> np.ndarray:
    f = np.finfo(dtype)
    edges = [
        f.max,
        f.tiny,
        f.smallest_subnormal,
        f.eps,
        1,
        2,
        3,
        0.5,
        1.5,
        2.5,
        0.92,
        4,
        6,
        88.72284,
        89.1,
        103.97,
        104,
        709.78,
        710.3,
        745.1,
    ]
    row = np.array([0, math.inf, math.pi / 2, math.pi, 1e5, 1e6, 1e10, 1e30, *edges], dtype)
    return np.concatenate([row, -row, np.array([math.nan], dtype)])


def arguments(dtype: np.dtype, seed: int, count: int = 4096) -> np.ndarray:
    random = np.random.default_rng(seed)
    bits = random.integers(0, 256, (count, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    spread = (random.standard_normal(count) * np.exp2(random.uniform(-10, 10, count))).astype(dtype)
    ranges = [random.uniform(-limit, limit, count).astype(dtype) for limit in (1.5, 6, 120, 750, 1e5)]
    return np.concatenate([specials(dtype), bits, spread, *ranges])


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place; inf for a wrong NaN or infinity (one step beyond the largest number counts as 1)."""
    dtype = got.dtype
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        largest = np.finfo(dtype).max
        spacing = np.spacing(np.where(np.isfinite(rounded), np.abs(rounded), 1).astype(dtype)).astype(LONG)
        distance = np.abs(got.astype(LONG) - exact) / spacing
        same = (got == rounded) & ~np.isfinite(rounded) | np.isnan(got) & np.isnan(rounded)
        beyond = np.isinf(got) & (np.abs(rounded) == largest) | np.isinf(rounded) & (np.abs(got) == largest)
        wrong = ~same & ~(np.isfinite(got) & np.isfinite(rounded))
    return np.where(same, 0, np.where(beyond, 1, np.where(wrong, np.inf, distance))).astype(np.float64)


def check(name: str, element: str, operands: list[np.ndarray], limit: float, target_name: str = "host", lanes: int | None = None) -> None:
    got = compute(name, element, operands, target_name, lanes)
    with np.errstate(all="ignore"):
        exact = np.asarray(REFERENCE[name](*[x.astype(LONG) for x in operands]))
    error = ulps(got, exact)
    worst = int(error.argmax())
    print(f"{target_name} {element} {name}: {error[worst]:.2f} ulp at {[x[worst] for x in operands]}")
    assert error[worst] <= limit, (name, [x[worst] for x in operands], got[worst], exact[worst])
    zero = (got == 0) & (exact == 0)
    assert (np.signbit(got) == np.signbit(exact))[zero].all(), f"{name}: a zero has the wrong sign"


@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("name", sorted(vector_math.UNARY))
def test_a_function_is_as_exact_as_its_docstring_says(name: str, element: str) -> None:
    x = arguments(NUMPY[element], seed=len(name))
    if element == "double" and name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 1e6)]
    check(name, element, [x], LIMIT_ULP[name])


@pytest.mark.parametrize(("name", "shifts"), [("exp", 3), ("sigmoid", 1), ("softplus", 2), ("tanh_of_softplus", 1)])
def test_an_exponential_that_cannot_overflow_makes_its_power_of_two_by_one_shift(name: str, shifts: int) -> None:
    ir = build(name, "float", 8, 1, by_name("avx2")).finish("shifts")[1]
    assert ir.count(" shl ") + ir.count(" ashr ") + ir.count(" lshr ") == shifts


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin", "atan", "asinh", "expm1", "sigmoid", "tanh_of_softplus"])
def test_every_target_that_runs_here_gives_the_same_exactness(name: str, target: Target) -> None:
    check(name, "float", [arguments(NUMPY["float"], 3)], LIMIT_ULP[name], target.name)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("name", ["exp", "sigmoid"])
def test_where_denormals_are_zero_results_are_exact_down_to_the_least_normal_numbers(name: str, element: str, target: Target) -> None:
    """Kernels of elements run so (`StageWriter`): 2^-125 and less may be zero."""
    edges = np.concatenate([edge + np.linspace(-2, 2, 801) for edge in (-87.3, 87.3, -88.7, 88.7, 0)])
    x = np.concatenate([arguments(NUMPY[element], 6), edges.astype(NUMPY[element])])
    with np.errstate(all="ignore"):
        got, exact = compute(name, element, [x], target.name, flushes=True), REFERENCE[name](x.astype(LONG))
    tiny = np.finfo(NUMPY[element]).tiny
    normal = ~(exact <= 2 * tiny)
    assert ulps(got[normal], exact[normal]).max() <= LIMIT_ULP[name]
    assert (got[~normal] >= 0).all()
    assert (got[~normal] <= 2 * tiny * (1 + 1e-6)).all()


@pytest.mark.parametrize("lanes", [1, 2, 8, 32])
@pytest.mark.parametrize("name", ["exp", "log1p", "tanh", "erf", "cos", "round_half_even"])
def test_any_number_of_lanes_works(name: str, lanes: int) -> None:
    check(name, "float", [arguments(NUMPY["float"], 4)], LIMIT_ULP[name], lanes=lanes)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_huge_double_angles_keep_an_absolute_error_of_a_few_units(name: str) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, 4096) * np.exp2(np.random.default_rng(2).uniform(20, 62, 4096))
    exact = REFERENCE[name](x.astype(LONG))
    assert np.abs(compute(name, "double", [x]) - exact).max() < 2e-15


def gates(name: str, x: np.ndarray) -> np.ndarray:
    """x times the share of x, both of which keep their digits where the share is small."""
    y = np.abs(x).astype(LONG)
    falling = {
        "gelu": np.vectorize(lambda y: 0.5 * math.erfc(y * math.sqrt(0.5)), otypes=[LONG]),
        "gelu_tanh": lambda y: 1 / (1 + np.exp(2 * math.sqrt(2 / math.pi) * (y + LONG(0.044715) * y**3))),
        "silu": lambda y: 1 / (1 + np.exp(y)),
    }[name](np.minimum(y, 40))
    return np.maximum(x, 0) - y * falling


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize(("name", "limit", "share"), [("gelu", 3e-7, 2e-6), ("gelu_tanh", 4e-7, 2e-5)])
def test_a_gate_is_as_exact_as_its_docstring_says(name: str, limit: float, share: float, target: Target) -> None:
    x = np.linspace(-7, 7, 30001, dtype=np.float32)
    error = np.abs(compute(name, "float", [x], target.name) - gates(name, x))
    ulp = np.spacing(np.maximum(np.abs(x), 1)).astype(LONG)
    assert (error / ulp).max() * np.spacing(np.float32(1)) <= limit
    near = (x > -3) & (x != 0)
    assert (error[near] / np.abs(gates(name, x[near]))).max() <= share


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("element", ["float", "double"])
def test_silu_is_exact_where_an_exponential_is_a_normal_number_and_as_good_as_zero_below(element: str, target: Target) -> None:
    end = {"float": 86, "double": 707}[element]
    x = arguments(NUMPY[element], 5)
    with np.errstate(all="ignore"):
        got, exact = compute("silu", element, [x], target.name), x.astype(LONG) * sigmoid(x.astype(LONG))
    inside = (np.abs(x) <= end) & (np.abs(exact) > np.finfo(NUMPY[element]).tiny)
    assert ulps(got[inside], exact[inside]).max() <= 3
    assert (got[x > end] == x[x > end]).all()
    assert np.isnan(got[np.isnan(x)]).all()
    below = np.isfinite(x) & (x < -end)
    assert (np.abs(got[below] / x[below].astype(LONG)) < np.exp(LONG(1 - end))).all()


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_functions_of_cells_are_as_exact_as_their_docstrings_say(target: Target) -> None:
    x = np.concatenate([np.linspace(-40, 40, 100001), np.geomspace(1e-30, 1, 1001), [1e30, np.inf]]).astype(np.float32)
    x = np.concatenate([x, -x])
    exact = np.tanh(x.astype(LONG))
    got = compute("cell_tanh", "float", [x], target.name)
    assert np.abs(got - exact).max() <= 3e-7
    assert np.abs(got[x != 0] / exact[x != 0] - 1).max() <= 3e-7
    assert np.abs(got).max() <= 1
    share = compute("cell_sigmoid", "float", [x], target.name)
    assert np.abs(share - (1 + np.tanh(x.astype(LONG) / 2)) / 2).max() <= 2e-7
    assert share.min() >= 0
    assert share.max() <= 1


@pytest.mark.parametrize("name", sorted(CELLS))
def test_functions_of_cells_keep_a_nan_and_their_value_at_zero(name: str) -> None:
    got = compute(name, "float", [np.array([np.nan, 0.0, -0.0], np.float32)])
    np.testing.assert_array_equal(got, [np.nan, *[REFERENCE[name.removeprefix("cell_")](np.zeros(1, LONG))[0]] * 2])


@pytest.mark.parametrize("name", sorted(vector_math.GATES))
def test_a_gate_is_open_or_shut_far_from_zero(name: str) -> None:
    x = np.array([0.0, -0.0, 30, 1e30, np.inf, -30, -1e30, -np.inf, np.nan], np.float32)
    got = compute(name, "float", [x])
    np.testing.assert_array_equal(got[:5], x[:5])
    np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])
    assert (np.abs(got[5:8]) < 3e-7).all()
    assert np.isnan(got[8])
    doubles = np.linspace(-7, 7, 1001)
    np.testing.assert_allclose(compute(name, "double", [doubles]), gates(name, doubles).astype(np.float64), rtol=0, atol=4e-15)


def pow_operands(dtype: np.dtype) -> list[np.ndarray]:
    random = np.random.default_rng(9)
    edges = np.concatenate([specials(dtype), np.array([4, 5, -4, -5, 1e9, 1e9 + 1, 2**24 + 1, 0.25, -0.25], dtype)])
    grid = np.meshgrid(edges, edges)
    base = np.abs(random.normal(1, 0.5, 20000)).astype(dtype)
    whole = np.round(random.uniform(-40, 40, 20000)).astype(dtype)
    x = np.concatenate([grid[0].ravel(), base, -base, base])
    return [x, np.concatenate([grid[1].ravel(), random.normal(0, 50, 20000).astype(dtype), whole, whole])]


def test_a_power_of_floats_is_correctly_rounded_with_every_special_case_of_c() -> None:
    check("pow", "float", pow_operands(NUMPY["float"]), 0.51)


def test_a_power_of_doubles_loses_only_what_its_exponent_costs() -> None:
    x, y = pow_operands(NUMPY["double"])
    with np.errstate(all="ignore"):
        size = np.abs(y * np.log(np.abs(x)))
    check("pow", "double", [x, y], 32.0)
    small = ~(size > 25)
    check("pow", "double", [x[small], y[small]], 3.0)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, -1.0, 0.5, 0.25, 0.75, 1.5, -0.5])
def test_a_literal_exponent_takes_the_short_way_and_gives_the_same(exponent: float) -> None:
    e = Emitter()
    data, output = e.argument(0), e.argument(1)
    with e.loop(e.begin, e.end) as loop:
        x = e.load(e.gep(data, loop.index, "float"), "float", 4)
        e.store(vector_math.pow(e, x, e.const(exponent, "float")), e.gep(output, loop.index, "float"), 4)
    x = arguments(NUMPY["float"], 11)
    got = np.full_like(x, -777)
    Compiled(e, "power", by_name("host"))([x, got], x.size)
    with np.errstate(all="ignore"):
        assert ulps(got, np.power(x.astype(LONG), exponent)).max() <= (2.51 if exponent == 0.75 else 1.51)  # a cube is rounded twice


def test_a_literal_exponent_is_seen_in_every_lane_of_a_nest() -> None:
    assert Emitter().splat(Emitter().const(0.75, "float"), 8) == Emitter().const(0.75, "<8 x float>")
    x = te.placeholder("x", (100,), dtypes.float32)
    power = te.compute((100,), lambda i: ex.binary("pow", x[i], ex.const(0.75, dtypes.float32)))
    kernel = generate([Output("y", power)], {}, by_name("avx2"))
    assert "llvm.sqrt" in kernel.ir
    assert "double>" not in kernel.ir  # the general way is computed in double


@pytest.mark.parametrize(("name", "reference"), [("fmod", np.fmod), ("mod", np.mod)])
def test_a_remainder_is_exact_whatever_the_quotient(name: str, reference: Callable[..., np.ndarray]) -> None:
    x = arguments(NUMPY["float"], 5)
    y = np.random.default_rng(6).permutation(x)
    got = compute(name, "float", [x, y])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, reference(x, y))
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(x if name == "fmod" else y)[got == 0])


@pytest.mark.parametrize(("name", "reference"), [("fmax", np.maximum), ("fmin", np.minimum)])
def test_the_larger_and_the_smaller_of_a_nan_is_nan(name: str, reference: Callable[..., np.ndarray]) -> None:
    x, y = (grid.ravel() for grid in np.meshgrid(specials(NUMPY["float"]), specials(NUMPY["float"])))
    np.testing.assert_array_equal(compute(name, "float", [x, y]), reference(x, y))


def test_remainders_of_doubles_are_refused_with_a_sentence() -> None:
    with pytest.raises(UnsupportedError, match="remainder is generated for float"):
        build("fmod", "double", 4, 2, by_name("host"))


def test_registers_of_other_types_are_refused() -> None:
    e = Emitter()
    with pytest.raises(UnsupportedError, match="float or double"):
        vector_math.exp(e, e.const(1, "i32"))


@pytest.mark.parametrize("target", sorted(NAMED))
def test_no_function_calls_anything_outside_on_any_target(target: str) -> None:
    for name in sorted({*vector_math.UNARY, *vector_math.BINARY, *vector_math.GATES}):
        e = build(name, "float", NAMED[target].lanes, 2 if name in vector_math.BINARY else 1, NAMED[target])
        assert undefined_symbols(emit_object(e.finish("check")[1], NAMED[target])) == [], name


@pytest.mark.parametrize("name", ["avx2", "avx512", "znver4"])
def test_a_product_with_a_share_is_a_minimum_and_a_maximum(name: str) -> None:
    """With the upper end last LLVM compared with 1 and chose between x and the product for AVX-512: 1.17 of the cycles (by its model)."""
    x, target = te.placeholder("x", (4096,), dtypes.float32), by_name(name)
    result = te.compute((4096,), lambda i: x[i] * ex.clamp_to_unit(x[i] * (1 / 6) + 0.5))
    assembly = emit_assembly(generate([Output("y", result)], {}, target).ir, target)
    assert (assembly.count("vminps"), assembly.count("vmaxps"), assembly.count("vcmp"), assembly.count("vblend")) == (1, 1, 0, 0)
