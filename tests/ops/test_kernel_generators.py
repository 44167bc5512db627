"""Operators whose kernels have generators of their own: no sample of theirs is left to the host."""

from __future__ import annotations

import pytest

from anycann.codegen.contract import refuse
from anycann.graph.registry import Lowering, library
from anycann.te import dtypes
from anycann.te.nest import contractions
from anycann.te.tensor import Placeholder, Tensor
from tests.ops.operator_runner import build_node, infer_types
from tests.ops.test_every_operator import OF_KERNEL_GENERATORS, samples, title


@pytest.mark.parametrize("name", sorted(OF_KERNEL_GENERATORS))
def test_every_sample_has_a_kernel(name: str) -> None:
    (operator,) = (operator for operator in library().all() if title(operator) == name)
    assert operator.lower is not None
    for sample in samples(operator):
        node = build_node(operator, sample)
        inputs = tuple(None if a is None else Placeholder(a.shape, dtypes.of(a.dtype), f"x{n}") for n, a in enumerate(sample.operands))
        lowered = operator.lower(Lowering(node, inputs, infer_types(operator, node, sample)))
        found = contractions([lowered] if isinstance(lowered, Tensor) else list(lowered))
        assert found
        for contraction in found:
            assert refuse(contraction, lambda name, known=sample.constant: int(name[1:]) in known) is None  # type: ignore[misc]
