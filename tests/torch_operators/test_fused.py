"""Operators that the engine computes once a shape comes often: results and gradients beside the body in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.autograd import forward_ad

from anycann.adapters.torch.operators import activations, fused, normalisation, rotary
from anycann.adapters.torch.operators.fused import Fused

Make = Callable[[torch.dtype], tuple[torch.Tensor, ...]]


def _random(*shapes: tuple[int, ...]) -> Make:
    return lambda dtype: tuple(torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes)


CASES: dict[str, tuple[Fused, tuple[object, ...], Make]] = {
    "swiglu": (activations._SWIGLU, (-1,), _random((3, 7, 22))),
    "swiglu, first axis": (activations._SWIGLU, (0,), _random((6, 5, 3))),
    "rms_norm": (normalisation._RMS_NORM, (1e-6,), _random((2, 9, 37), (37,))),
    "add_rms_norm": (normalisation._ADD_RMS_NORM, (1e-5,), _random((4, 33), (4, 33), (33,))),
    "rotary_mul": (rotary._ROTARY_MUL, ("half",), _random((2, 3, 5, 18), (1, 1, 5, 18), (1, 1, 5, 18))),
    "rotary_mul, neighbours": (rotary._ROTARY_MUL, ("interleave",), _random((2, 3, 18), (1, 3, 18), (2, 3, 18))),
}
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "OFTEN", 1)
    monkeypatch.setattr(fused, "LARGE", 1)


def _with_gradients(
    case: Fused, numbers: tuple[object, ...], given: tuple[torch.Tensor, ...], factors: list[torch.Tensor]
) -> list[torch.Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in given]
    results = case(tuple(leaves), *numbers)  # type: ignore[arg-type]
    graded = [results[at] for at in case.graded]
    torch.autograd.backward(graded, [factor.to(leaves[0]) for factor in factors])
    return [*results, *(leaf.grad for leaf in leaves if leaf.grad is not None)]


_SLOW = pytest.mark.slow  # each compiles two programs


@pytest.mark.parametrize(
    ("name", "dtype", "device"),
    [
        ("swiglu", torch.float32, "npu"),
        ("rms_norm", torch.bfloat16, "cpu"),
        *(
            pytest.param(name, dtype, device, marks=_SLOW)
            for name in CASES
            for dtype, device in ((torch.float32, "cpu"), (torch.bfloat16, "npu"), (torch.float16, "npu"))
        ),
    ],
    ids=str,
)
def test_results_and_gradients_of_generated_kernels(name: str, dtype: torch.dtype, device: str) -> None:
    case, numbers, make = CASES[name]
    case = Fused(case.body, case.backward._body, case.graded)
    for _ in range(2):
        given = make(dtype)
        shapes = [case.body(*given, *numbers)[at].shape for at in case.graded]
        factors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        got = _with_gradients(case, numbers, tuple(tensor.to(device) for tensor in given), factors)
        wanted = _with_gradients(case, numbers, tuple(tensor.double() for tensor in given), factors)
        assert [tensor.device.type for tensor in got] == [device] * len(wanted)
        for ours, exact in zip(got, wanted, strict=True):
            torch.testing.assert_close(
                ours.cpu().double(), exact, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * exact.abs().max().item()
            )
    programs = [*case.forward._programs.values(), *case.backward._programs.values()]
    assert len(programs) == 2
    assert all(programs), "the engine has no kernel for the body"


def test_gradients_of_gradients_and_of_other_results_are_torchs() -> None:
    x, gamma = (tensor.requires_grad_() for tensor in _random((2, 9), (9,))(torch.float32))
    case = normalisation._RMS_NORM
    values = []
    for call in (lambda: case((x, gamma), 1e-6), lambda: case.body(x, gamma, 1e-6)):
        y, reciprocal = call()
        (by_x,) = torch.autograd.grad(y.square().sum() + reciprocal.sum(), x, create_graph=True)
        values.append((by_x, *torch.autograd.grad(by_x.square().sum(), (x, gamma))))
    torch.testing.assert_close(values[0], values[1], rtol=1e-4, atol=1e-4)  # differences of larger numbers


def test_what_has_no_gradient_behind_it_gets_none() -> None:
    class Stopped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, above: torch.Tensor) -> None:
            return None

    x, gamma = (tensor.requires_grad_() for tensor in _random((2, 9), (9,))(torch.float32))
    y, _ = normalisation._RMS_NORM((x, gamma), 1e-6)
    Stopped.apply(y).sum().backward()
    assert x.grad is None
    assert gamma.grad is None


def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    x, cos, sin = _random((2, 3, 8), (1, 3, 8), (1, 3, 8))(torch.float32)
    case = Fused(rotary._rotary_mul, rotary.rotary_mul_backward)
    case((x.requires_grad_(), cos, sin), "half")[0].sum().backward()
    ((*_, wanted),) = case.backward._programs
    assert wanted == (True, False, False)
    torch.testing.assert_close(x.grad, cos + torch.cat((sin[..., 4:], -sin[..., :4]), -1).expand_as(x))


def test_what_is_small_rare_or_strided_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Fused(activations._swiglu, activations._swiglu_gradient)
    (x,) = _random((4, 6))(torch.float32)
    case((x.t(),), 0)
    case((x.double(),), 1)
    case((torch._neg_view(x),), 1)
    monkeypatch.setattr(fused, "OFTEN", 3)
    for _ in range(2):
        case((x,), 1)
    assert not case.forward._programs
    case((x,), 1)
    assert len(case.forward._programs) == 1
    assert not case.forward._met


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch scripts its own formulas for it
def test_forward_gradients_are_torchs() -> None:
    (x,) = _random((4, 6))(torch.float32)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        got, wanted = (
            forward_ad.unpack_dual(call((dual,), 1)[0]).tangent
            for call in (activations._SWIGLU, lambda x, dim: activations._swiglu(*x, dim))
        )
    assert got is not None
    torch.testing.assert_close(got, wanted)


def test_neither_counts_nor_programs_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Fused(activations._SWIGLU.body, activations._SWIGLU.backward._body)
    monkeypatch.setattr(type(case.forward), "_compile", lambda self, *call: call)
    monkeypatch.setattr(fused, "KEPT", 3)
    monkeypatch.setattr(fused, "REMEMBERED", 5)
    for size in range(1, 10):
        assert case.forward.find((torch.ones(size, 2),), ()) is not None
    assert [key[0][0][0] for key in case.forward._programs] == [7, 8, 9]
    monkeypatch.setattr(fused, "OFTEN", 2)
    assert [case.forward.find((torch.ones(size, 4),), ()) for size in range(1, 10)] == [None] * 9
    assert len(case.forward._met) == 4
    assert case.forward.find((torch.ones(9, 4),), ()) is not None
