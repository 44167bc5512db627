"""Every operator of torch.ops.npu against its reference, on CPU and npu; gradients by differences, shapes by torch's opcheck."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the operators of torch_npu need torch")

from anycann.adapters.torch.operators.all import OPERATORS  # noqa: E402
from tests.torch_operators import cases_of_every_family  # noqa: E402
from tests.torch_operators.walk import CASES, Case, array, mapped, packet, results  # noqa: E402

assert cases_of_every_family
_IN_GROUPS = {
    "npu_mm_all_reduce_base",
    "npu_all_gather_base_mm",
    "npu_mm_reduce_scatter_base",
    "npu_moe_distribute_dispatch",
    "npu_moe_distribute_dispatch_v2",
    "npu_moe_distribute_combine",
    "npu_moe_distribute_combine_v2",
    "npu_alltoallv_gmm",
    "npu_gmm_alltoallv",
}  # their tests start processes: test_parallel.py
DEVICES = [pytest.param("cpu", id="on_cpu"), pytest.param("npu", id="on_npu")]


def _on(value: Any, device: str) -> Any:
    return mapped(value, lambda tensor: tensor.clone().to(device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_the_references(case: Case, device: str) -> None:
    expected = list(results(case.reference(*mapped(case.arguments, array), **mapped(case.options, array))))
    arguments, options = _on(case.arguments, device), _on(case.options, device)
    actual = list(results(packet(case.operator)(*arguments, **options)))
    actual += [arguments[index] for index in case.written]
    assert len(actual) == len(expected), f"{len(actual)} results, the reference has {len(expected)}"
    for number, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if want is not None:
            _compare(got, want, device, case, number)


def _compare(got: Any, want: Any, device: str, case: Case, number: int) -> None:
    if isinstance(got, list):
        for one, other in zip(got, want, strict=True):
            _compare(one, other, device, case, number)
        return
    if not isinstance(got, torch.Tensor):
        assert got == want
        return
    if any(isinstance(a, torch.Tensor) for a in case.arguments):
        assert got.device.type == device
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape, f"result {number} is {tuple(got.shape)}, the reference's {want.shape}"
    if got.is_floating_point() and not case.check_exactly:
        np.testing.assert_allclose(array(got), want, rtol=case.tolerance, atol=case.tolerance, err_msg=f"result {number}")
    else:
        np.testing.assert_array_equal(array(got), want, err_msg=f"result {number}")


@pytest.mark.parametrize("case", [case for case in CASES if case.differentiable], ids=str)
def test_gradients_are_those_of_differences(case: Case) -> None:
    leaves: list[torch.Tensor] = []
    held = {id(case.arguments[index]) for index in case.held}

    def moves(tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() and id(tensor) not in held

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not moves(tensor):
            return tensor
        leaves.append(tensor.double().requires_grad_())
        return leaves[-1]

    mapped(case.arguments, leaf), mapped(case.options, leaf)
    rest = iter(range(len(leaves)))

    def run(*given: torch.Tensor) -> Any:
        nonlocal rest
        rest = iter(given)
        place = lambda tensor: next(rest) if moves(tensor) else tensor  # noqa: E731
        out = results(packet(case.operator)(*mapped(case.arguments, place), **mapped(case.options, place)))
        return tuple(o for o in out if isinstance(o, torch.Tensor) and o.is_floating_point() and o.requires_grad)

    assert torch.autograd.gradcheck(run, tuple(leaves), atol=1e-5, rtol=1e-3, fast_mode=True)


@pytest.mark.parametrize("name", sorted(name for name, operator in OPERATORS.items() if operator.composed and operator.differentiable))
def test_what_torch_differentiates_has_gradients(name: str) -> None:
    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        # not a leaf itself: some operators write it
        return tensor.clone().requires_grad_().clone() if tensor.is_floating_point() else tensor.clone()

    def tracked(value: Any) -> bool:
        return value.requires_grad if isinstance(value, torch.Tensor) else isinstance(value, list) and any(map(tracked, value))

    for case in (case for case in CASES if case.operator == name):
        arguments = mapped(case.arguments, leaf)
        found = results(packet(name)(*arguments, **mapped(case.options, leaf)))
        if any(map(tracked, [*found, *(arguments[index] for index in case.written)])):
            return
    assert name in _IN_GROUPS, "the reference page says that torch differentiates it"


def _takes_float8(case: Case) -> bool:
    found: list[bool] = []
    mapped((case.arguments, case.options), lambda tensor: found.append(tensor.dtype.itemsize == 1 and tensor.is_floating_point()))
    return any(found)


# of an operator the first case without float8, if it has one
_FIRST_CASES: dict[str, Case] = {}
for _case in sorted(CASES, key=_takes_float8):
    _FIRST_CASES.setdefault(_case.operator, _case)


@pytest.mark.parametrize(("number", "columns"), [(296, 2), (torch.float8_e5m2, 4)])
def test_experts_of_microscaling_need_no_values_for_shapes(number: Any, columns: int) -> None:
    ends = torch.empty(3, dtype=torch.int32, device="meta")
    y, scales = torch.ops.npu.npu_grouped_dynamic_mx_quant(torch.empty(150, 4, device="meta"), ends, dst_type=number)
    assert (y.shape, scales.shape) == ((150, columns), (5, 4, 2))


# torch has no allclose for its float8 types, with which test_schema compares
_OF_FLOAT8 = {
    "npu_anti_mx_quant",
    "npu_dynamic_block_mx_quant",
    "npu_dynamic_mx_quant",
    "npu_dynamic_mx_quant_with_dual_axis",
    "npu_grouped_dynamic_mx_quant",
}


@pytest.mark.parametrize("case", _FIRST_CASES.values(), ids=str)
def test_fake_tensors_and_schemas_agree_with_what_runs(case: Case) -> None:
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor")[case.operator in _OF_FLOAT8 :]
    found = packet(case.operator)
    overload = found if isinstance(found, torch._ops.OpOverload) else found.default
    torch.library.opcheck(overload, mapped(case.arguments, torch.clone), mapped(case.options, torch.clone), test_utils=utilities)


# opcheck sums up all results in the dtype of the first, which is a mask here
_NOT_SUMMED = {"npu_dropout_with_add_softmax"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in _FIRST_CASES.values() if case.differentiable and case.operator not in _NOT_SUMMED], ids=str
)
def test_a_compiler_sees_the_same_gradients(case: Case) -> None:
    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone().requires_grad_(tensor.is_floating_point())

    found = packet(case.operator)
    overload = found if isinstance(found, torch._ops.OpOverload) else found.default
    torch.library.opcheck(overload, mapped(case.arguments, leaf), mapped(case.options, leaf), test_utils=("test_aot_dispatch_dynamic",))


def test_every_operator_has_a_case() -> None:
    missing = sorted(set(OPERATORS) - {case.operator for case in CASES} - _IN_GROUPS)
    assert not missing, f"operators without a case in tests/torch_operators: {', '.join(missing)}"


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_body_takes_what_its_schema_says(name: str) -> None:
    operator = OPERATORS[name]
    found = packet(name)
    schema = (found if isinstance(found, torch._ops.OpOverload) else found.default)._schema
    parameters = list(inspect.signature(operator.body).parameters.values())
    if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        return
    assert [p.name for p in parameters] == [a.name for a in schema.arguments]
    for parameter, argument in zip(parameters, schema.arguments, strict=True):
        if parameter.default is not inspect.Parameter.empty:
            assert argument.has_default_value(), argument.name
            assert parameter.default == argument.default_value, argument.name
        else:
            assert not argument.has_default_value(), argument.name
