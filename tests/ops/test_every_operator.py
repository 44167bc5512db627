"""Every operator of the library, on its own samples, against its reference: the registry is walked, no operator is named here."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from anycann.graph.registry import Operator, Sample, library
from anycann.target.target import by_name, host
from anycann.te.layout import NC1HWC0, ND
from tests.codegen.kernels.jit import distinct_names
from tests.ops.operator_runner import build_cases, convert_layout, run

# Rounding to an integer decides: float64 would see other ties than the operator's own arithmetic.
IN_OWN_PRECISION = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "CumSum"})


# Their results come from kernel generators of their own, which their own tests run.
OF_KERNEL_GENERATORS = frozenset({"LSTM", "GRU", "RNN", "anycann.Attention", "anycann.DynamicAipp"})
TARGETS = distinct_names("host", "sse", "avx2")
OF_LAYOUTS = frozenset({"anycann.TransData"})  # test_tensors_change_their_layout_and_back


def operators() -> list[Operator]:
    found = [o for o in library().all() if o.lower is not None and o.samples is not None]
    tested = [o for o in found if title(o) not in OF_KERNEL_GENERATORS | OF_LAYOUTS]
    return sorted(tested, key=lambda o: (o.domain, o.op_type))


def test_every_lowering_has_samples() -> None:
    assert not [title(o) for o in library().all() if o.lower is not None and o.samples is None]


def samples(operator: Operator) -> list[Sample]:
    assert operator.samples is not None
    drawn = list(operator.samples(np.random.default_rng(zlib.crc32(operator.op_type.encode()))))
    assert drawn, f"{title(operator)} has no samples"
    return drawn


def title(operator: Operator) -> str:
    return f"{operator.domain}.{operator.op_type}" if operator.domain else operator.op_type


def failures(operator: Operator, target_name: str, limit: int | None = None) -> list[str]:
    target = host() if target_name == "host" else by_name(target_name)
    upcast = operator.op_type not in IN_OWN_PRECISION
    cases = [case for sample in samples(operator)[:limit] for case in build_cases(operator, sample, target, upcast)]
    return run(cases, target)


@pytest.mark.parametrize("operator", operators(), ids=title)
def test_an_operator_gives_what_its_reference_gives_in_both_layouts(operator: Operator) -> None:
    assert not failures(operator, "host")


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "host"])
@pytest.mark.parametrize("operator", operators()[::7], ids=title)
def test_narrower_processors_give_the_same(operator: Operator, target: str) -> None:
    assert not failures(operator, target, 3)


@pytest.mark.parametrize(("target", "dtype"), [*((name, "float32") for name in TARGETS), ("host", "float16"), ("host", "int8")])
@pytest.mark.parametrize("shape", [(2, 19, 5, 7), (1, 64, 9, 9), (3, 3, 20, 20), (2, 33, 40), (1, 1, 4, 4), (1, 17, 2, 3, 5)])
def test_tensors_change_their_layout_and_back(shape: tuple[int, ...], dtype: str, target: str) -> None:
    array = np.random.default_rng(0).integers(-99, 99, shape).astype(dtype)
    for stored, wanted in ((ND, NC1HWC0), (NC1HWC0, ND), (NC1HWC0, NC1HWC0)):
        assert np.array_equal(convert_layout(array, stored, wanted, by_name(target)), array), (stored, wanted)
