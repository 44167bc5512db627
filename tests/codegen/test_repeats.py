"""Layers that repeat are written once, under the names of each; the kernels are those that are written one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.recipe import Recipe
from anycann.codegen.repeats import Repeats
from anycann.codegen.tail import Generated
from anycann.support.errors import InternalError
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Attention, Convolution, MatMul, Viewed
from anycann.te.layout import NC1HWC0, ND, NHWC
from anycann.te.nest import contractions
from anycann.te.strided import Strided

TARGET = by_name("avx2")
Names = tuple[str, str, str, str]
FIRST, SECOND = ("x", "w", "b", "y"), ("hidden", "weights", "bias", "result")


def _product(names: Names, dtype: dtypes.DType, result: dtypes.DType) -> Recipe:
    x, w, b = te.placeholder(names[0], (5, 24), dtype), te.placeholder(names[1], (24, 17), dtype), te.placeholder(names[2], (17,), result)
    product = te.contraction(MatMul(x, w), (5, 17), result)
    return Recipe((Output(names[3], te.compute((5, 17), lambda i, j: product[i, j] + b[j])),), {}, TARGET)


def _convolution(names: Names, size: int, layout: str, dtype: dtypes.DType = dtypes.float32) -> Recipe:
    shape, sums = (1, 16, 9, 9), dtypes.int32 if dtype is dtypes.uint8 else dtypes.float32
    x, w = te.placeholder(names[0], shape, dtype), te.placeholder(names[1], (16, 16, size, size), dtype)
    b = te.placeholder(names[2], (16,), sums)
    pads = (size // 2, size // 2)
    product = te.contraction(Convolution(x, w, (1, 1), pads, (1, 1), 1, (9, 9)), shape, sums)
    output = te.compute(shape, lambda n, c, i, j: product[n, c, i, j] + b[c])
    return Recipe((Output(names[3], output, layout),), {names[0]: layout} if layout != ND else {}, TARGET)


def _attention(names: Names) -> Recipe:
    query, key, value = (te.placeholder(name, (2, 7, 16), dtypes.float32) for name in names[:3])
    q, k, v = (Viewed(tensor, Strided.contiguous((2, 7, 16))) for tensor in (query, key, value))
    result = te.contraction(Attention(q, k, v, (), (), 0.25, (0, 1, 2)), (2, 7, 16), dtypes.float32)
    return Recipe((Output(names[3], te.compute((2, 7, 16), lambda n, i, d: result[n, i, d])),), {}, TARGET)


def _nest(names: Names) -> Recipe:
    x, w, b = (te.placeholder(name, (6, 10), dtypes.float32) for name in names[:3])
    return Recipe((Output(names[3], te.compute((6, 10), lambda i, j: x[i, j] * w[i, j] + b[i, j])),), {}, TARGET)


RECIPES = {
    "product": lambda names: _product(names, dtypes.float32, dtypes.float32),
    "product of bytes": lambda names: _product(names, dtypes.uint8, dtypes.int32),
    "pointwise": lambda names: _convolution(names, 1, NC1HWC0),
    "3x3": lambda names: _convolution(names, 3, NC1HWC0),
    "row-major": lambda names: _convolution(names, 3, ND),
    "convolution of bytes": lambda names: _convolution(names, 3, NHWC, dtypes.uint8),
    "attention": _attention,
    "elementwise": _nest,
}


def _generate(recipe: Recipe, repeats: Repeats | None = None) -> Generated:
    """Generated with weights that nothing else has."""
    operators = [c.operator for c in contractions([output.tensor for output in recipe.outputs])]
    weights = {w.name: w for w in (getattr(o, "w", getattr(o, "b", None)) for o in operators) if w is not None}
    rng = np.random.default_rng()

    def constant(name: str) -> np.ndarray[Any, Any] | None:
        return None if name not in weights else rng.integers(0, 9, weights[name].shape).astype(weights[name].dtype.numpy)

    return recipe.generate(constant, repeats=repeats)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the results of kernels that are written from now on; nothing is checked again."""
    monkeypatch.setenv("ANYCANN_VERIFY", "0")
    written: list[str] = []
    ask = Repeats.kernel

    def kernel(self: Repeats, facts: Any, outputs: Any, layouts: Any, others: Any, write: Any) -> Kernel:
        def counting() -> Kernel:
            written.append(outputs[0].name)
            return write()  # type: ignore[no-any-return]

        return ask(self, facts, outputs, layouts, others, counting)

    monkeypatch.setattr(Repeats, "kernel", kernel)
    return written


@pytest.mark.parametrize("name", RECIPES)
def test_a_layer_that_repeats_is_written_once_and_reads_its_own_operands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written, repeats = _counted(monkeypatch), Repeats()
    first, second = (_generate(RECIPES[name](names), repeats) for names in (FIRST, SECOND))
    assert written == ["y"]
    alone = _generate(RECIPES[name](SECOND))
    packed = dict(zip((p.name for p in second.packed), (p.name for p in alone.packed), strict=True))
    arguments = tuple(packed.get(argument, argument) for argument in second.kernel.arguments)
    assert replace(second.kernel, arguments=arguments) == alone.kernel
    assert first.kernel.symbol == alone.kernel.symbol
    assert set(second.kernel.arguments) >= {"hidden", "result"}
    assert not {"x", "w", "b", "y"} & set(second.kernel.arguments)


def test_other_layouts_are_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    written, repeats = _counted(monkeypatch), Repeats()
    symbols = {_generate(_convolution(FIRST, 1, layout), repeats).kernel.symbol for layout in (ND, NC1HWC0)}
    assert len(symbols) == len(written) == 2


def test_a_kernel_taken_for_another_is_found_where_kernels_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_VERIFY", "1")
    outputs, repeats = _nest(FIRST).outputs, Repeats()

    def write(family: str) -> Kernel:
        return generate(outputs, {}, TARGET, family)

    repeats.kernel("facts", outputs, {}, (), lambda: write("one"))
    with pytest.raises(InternalError, match="was taken for the kernel of y, which is another one"):
        repeats.kernel("facts", outputs, {}, (), lambda: write("other"))
