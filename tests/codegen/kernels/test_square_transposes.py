"""Squares of vectors in registers become their columns, whatever their type and size."""

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_packing import transpose
from anycann.codegen.values import vector_type
from anycann.target.target import NAMED, Target, by_name
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runnable

TYPES = {"float": np.float32, "i32": np.int32, "double": np.float64, "i16": np.int16}


def square(element: str, size: int) -> Emitter:
    """y[i, j] = x[j, i] of size x size elements."""
    e, nbytes = Emitter(), np.dtype(TYPES[element]).itemsize
    x, y = e.argument(0), e.argument(1)
    rows = [e.load(e.gep(x, i * size, element), vector_type(element, size), nbytes) for i in range(size)]
    for i, row in enumerate(transpose(e, rows)):
        e.store(row, e.gep(y, i * size, element), nbytes)
    return e


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_rows_become_columns(size: int, element: str, target: Target) -> None:
    x = np.arange(size * size, dtype=TYPES[element]).reshape(size, size)
    y = np.full_like(x, -1)
    Compiled(square(element, size), "transpose", target)([x, y], 1)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles(name: str) -> None:
    assert_compiles_everywhere(lambda target: square("float", target.lanes), [by_name(name)])
