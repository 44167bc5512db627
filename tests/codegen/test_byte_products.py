"""Which bytes are multiplied by magnitudes in a model, and that all of them are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anycann.codegen import contract_dot_matmul, contract_dot_plan, contract_dots
from anycann.codegen.contract_dot_plan import plan_dots
from anycann.codegen.kernels.dot_direct import gains_directly
from anycann.codegen.kernels.dot_products import may_take_magnitudes
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.session import InferenceSession, SessionOptions
from anycann.target.target import Target
from tests.codegen.kernels.jit import runnable
from tests.passes.graphs import parse

TARGETS = pytest.mark.parametrize("target", [t for t in runnable() if may_take_magnitudes(t)], ids=lambda target: target.name)
RNG = np.random.default_rng(5)
IMAGE = "g (uint8[1, {channels}, 6, 7] x{more}) => (int32[N, O, H, W] y) {{ y = ConvInteger<strides = [2, 1]>(x, w{zeros}) }}"


def signed(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def plans(monkeypatch: pytest.MonkeyPatch) -> list[DotPlan]:
    """The plans that are made from now on."""
    seen = list[DotPlan]()

    def plan(*args: Any, **kwargs: Any) -> DotPlan:
        seen.append(plan_dots(*args, **kwargs))
        return seen[-1]

    for module in (contract_dot_matmul, contract_dots):
        monkeypatch.setattr(module, "plan_dots", plan)
    return seen


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[1, O, H, W]: 2 x 3 taps with a stride of 2 along the rows."""
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.int32), w.shape[2:], (1, 2))[:, ::2]
    return np.einsum("chwij,ocij->ohw", windows, w.astype(np.int32))[None]


@TARGETS
@pytest.mark.parametrize(
    ("channels", "zeros", "constants", "magnitudes"),
    [
        (8, "", {}, True),
        (8, ", a", {"a": np.uint8(200)}, True),
        (8, ", p", {}, False),  # a zero point that is computed
        (8, ", a, b", {"a": np.uint8(3), "b": np.int8(5)}, False),
        (6, "", {}, False),  # channels that make no whole groups
    ],
)
def test_convolutions_whose_zero_points_are_known(
    target: Target, channels: int, zeros: str, constants: dict[str, np.ndarray], magnitudes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = plans(monkeypatch)
    w, x = signed(20, channels, 2, 3), RNG.integers(0, 256, (1, channels, 6, 7)).astype(np.uint8)
    computed = ", p" in zeros
    text = IMAGE.format(channels=channels, more=", uint8 p" if computed else "", zeros=zeros)
    feeds = {"x": x, **({"p": np.array(9, np.uint8)} if computed else {})}
    model = parse(text, w=w, **{name: np.asarray(value) for name, value in constants.items()})
    (y,) = InferenceSession(model, SessionOptions(target=target, poison=True)).run(None, feeds)
    zero, weight_zero = 9 if computed else int(constants.get("a", 0)), int(constants.get("b", 0))
    np.testing.assert_array_equal(y, convolved(x.astype(np.int32) - zero, w.astype(np.int32) - weight_zero))
    assert seen
    assert {plan.magnitudes for plan in seen} == {magnitudes}


@TARGETS
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 64, 40), (13, 68, 33), (21, 7, 9)])
@pytest.mark.parametrize("unsigned", [False, True])
def test_products_with_signed_weights(
    target: Target, dtype: str, rows: int, depth: int, columns: int, unsigned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = plans(monkeypatch)
    w = RNG.integers(0, 256, (depth, columns)).astype(np.uint8) if unsigned else signed(depth, columns)
    x = RNG.integers(0, 256, (rows, depth)).astype(np.uint8).view(dtype)
    text = f"g ({dtype}[{rows}, {depth}] x) => (int32[M, N] y) {{ y = MatMulInteger(x, w, a) }}"
    model = parse(text, w=w, a=np.array(3, dtype))
    (y,) = InferenceSession(model, SessionOptions(target=target, poison=True)).run(None, {"x": x})
    np.testing.assert_array_equal(y, (x.astype(np.int32) - 3) @ w.astype(np.int32))
    assert seen
    assert {plan.magnitudes for plan in seen} == {not unsigned}


@TARGETS
def test_unsigned_weights_of_groups_are_those_of_one_group_apart(target: Target) -> None:
    """Without a zero point: less 128 they would have one, which a panel of several groups would take from the channels of all."""
    w, x = RNG.integers(0, 256, (24, 8, 2, 3)).astype(np.uint8), RNG.integers(0, 256, (1, 16, 6, 7)).astype(np.uint8)
    text = IMAGE.format(channels=16, more="", zeros=", a").replace("strides", "group = 2, strides")
    (got,) = InferenceSession(parse(text, w=w, a=np.uint8(77)), SessionOptions(target=target, poison=True)).run(None, {"x": x})
    groups = [convolved(x[:, 8 * n : 8 * n + 8].astype(np.int32) - 77, w[12 * n : 12 * n + 12]) for n in range(2)]
    np.testing.assert_array_equal(got, np.concatenate(groups, 1))


@TARGETS
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_trained_weights_are_multiplied_as_they_are_where_they_are_small(
    target: Target, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = list[bool]()

    def gains(plan: DotPlan, weights: np.ndarray) -> bool:
        chosen.append(gains_directly(plan, weights))
        return chosen[-1]

    monkeypatch.setattr(contract_dot_plan, "gains_directly", gains)
    w = np.clip(RNG.normal(0, 30, (40, 16, 2, 3)), -128, 127).astype(np.int8)
    x = RNG.integers(0, 256, (1, 16, 6, 7)).astype(np.uint8).view(dtype)
    text = IMAGE.format(channels=16, more="", zeros=", a").replace("uint8", dtype)
    (y,) = InferenceSession(parse(text, w=w, a=np.array(9, dtype)), SessionOptions(target=target, poison=True)).run(None, {"x": x})
    np.testing.assert_array_equal(y, convolved(x.astype(np.int32) - 9, w))
    matrix, rows = w.reshape(40, 96).T, x.reshape(7, 96)
    model = parse(f"g ({dtype}[7, 96] x) => (int32[M, N] y) {{ y = MatMulInteger(x, w, a) }}", w=matrix.copy(), a=np.array(3, dtype))
    (y,) = InferenceSession(model, SessionOptions(target=target, poison=True)).run(None, {"x": rows})
    np.testing.assert_array_equal(y, (rows.astype(np.int32) - 3) @ matrix.astype(np.int32))
    assert chosen == [True, True]


@TARGETS
@pytest.mark.parametrize(
    ("dtype", "zero", "around"),
    [("uint8", 0, 0), ("uint8", 32, 0), ("uint8", 33, 33), ("uint8", 255, 255), ("int8", -128, 0), ("int8", 0, 128), ("int8", 4, 132)],
)
def test_groups_of_the_input_are_sorted_around_its_zero_point(
    target: Target, dtype: str, zero: int, around: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = plans(monkeypatch)
    point, w = np.array(zero, dtype), signed(320, 16, 2, 3)
    limits = np.iinfo(dtype)
    x = np.clip(RNG.normal(zero, 40, (1, 16, 6, 7)), limits.min, limits.max).astype(dtype)
    text = IMAGE.format(channels=16, more="", zeros=", a").replace("uint8", dtype)
    (y,) = InferenceSession(parse(text, w=w, a=point), SessionOptions(target=target, poison=True)).run(None, {"x": x})
    np.testing.assert_array_equal(y, convolved(x.astype(np.int32) - zero, w))
    matrix, rows = w.reshape(320, 96).T, x.reshape(7, 96)
    model = parse(f"g ({dtype}[7, 96] x) => (int32[M, N] y) {{ y = MatMulInteger(x, w, a) }}", w=matrix.copy(), a=point)
    (y,) = InferenceSession(model, SessionOptions(target=target, poison=True)).run(None, {"x": rows})
    np.testing.assert_array_equal(y, (rows.astype(np.int32) - zero) @ matrix.astype(np.int32))
    assert [plan.around for plan in seen] == [around, around]


@TARGETS
def test_groups_are_not_sorted_where_the_zero_point_is_computed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = plans(monkeypatch)
    w, x = signed(96, 60), RNG.integers(0, 256, (7, 96)).astype(np.uint8)
    model = parse("g (uint8[7, 96] x, uint8 a) => (int32[M, N] y) { y = MatMulInteger(x, w, a) }", w=w)
    (y,) = InferenceSession(model, SessionOptions(target=target, poison=True)).run(None, {"x": x, "a": np.array(9, np.uint8)})
    np.testing.assert_array_equal(y, (x.astype(np.int32) - 9) @ w.astype(np.int32))
    assert [(plan.magnitudes, plan.around) for plan in seen] == [(True, None)]
