"""Numpy meanings that stand in an operator's own definition (graph/ops), in the form onnx.reference takes."""

from __future__ import annotations

from functools import cache

import numpy as np
from onnx.reference.op_run import OpRun

from anycann.graph.registry import Operator, library


def defined_operators() -> tuple[type[OpRun], ...]:
    """A class for each operator of the library whose definition gives a reference."""
    return tuple(_class_of(operator) for operator in library().all() if operator.reference is not None)


@cache
def _class_of(operator: Operator) -> type[OpRun]:
    reference = operator.reference
    assert reference is not None

    def run(self: OpRun, *operands: object, **attributes: object) -> tuple[object, ...]:
        results = reference(*operands, **attributes)
        return results if isinstance(results, tuple) else (np.asarray(results),)

    return type(operator.op_type, (OpRun,), {"op_domain": operator.domain, "op_schema": None, "_run": run})
