"""Every operator of the library, on its own samples, against its reference: the registry is walked, no operator is named here."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from anycann.graph.registry import Operator, library
from anycann.target.target import by_name, host
from tests.ops.operator_runner import build_cases, run

# Rounding to an integer decides: float64 would see other ties than the operator's own arithmetic.
IN_OWN_PRECISION = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "CumSum"})


def operators() -> list[Operator]:
    return sorted((o for o in library().all() if o.lower is not None and o.samples is not None), key=lambda o: (o.domain, o.op_type))


def samples(operator: Operator) -> list:
    assert operator.samples is not None
    return list(operator.samples(np.random.default_rng(zlib.crc32(operator.op_type.encode()))))


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


@pytest.mark.parametrize("target", ["sse", "avx2"])
@pytest.mark.parametrize("operator", operators()[::7], ids=title)
def test_narrower_processors_give_the_same(operator: Operator, target: str) -> None:
    assert not failures(operator, target, 3)
