"""Small kernels to tune."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.nest_kernel import Output
from anycann.codegen.recipe import Recipe
from anycann.codegen.space import Choices
from anycann.target.target import Target, host
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Attention, Convolution, MatMul, Viewed
from anycann.te.layout import NC1HWC0
from anycann.te.strided import Strided
from anycann.tuning.task import TuningTask, task_of


def convolution_task(size: int = 20, channels: int = 32, kernel: int = 1, target: Target | None = None) -> TuningTask:
    """A convolution with a bias."""
    sizes = ((size,) * 2, (kernel,) * 2, (1, 1), (1, 1), (kernel // 2,) * 2, (size,) * 2)
    return convolution_task_of(ConvolutionShape(1, channels, channels, 1, *sizes), target or host())


def convolution_task_of(shape: ConvolutionShape, target: Target) -> TuningTask:
    """A convolution of this shape with a bias, from blocks of channels to blocks of channels."""
    x = te.placeholder("x", (shape.batch, shape.in_channels, *shape.in_size), shape.dtype)
    w = te.placeholder("w", (shape.out_channels, shape.in_channels // shape.group, *shape.kernel), dtypes.float32)
    operator = Convolution(x, w, shape.strides, shape.pads_begin, shape.dilations, shape.group, shape.out_size)
    results = (shape.batch, shape.out_channels, *shape.out_size)
    product, bias = te.contraction(operator, results, dtypes.float32), te.placeholder("bias", (shape.out_channels,), dtypes.float32)
    result = te.compute(results, lambda n, c, y, x: product[n, c, y, x] + bias[c])
    return _task(Recipe((Output("y", result, NC1HWC0),), {"x": NC1HWC0}, target), "w", w.shape)


def matmul_task(m: int = 40, n: int = 50, k: int = 60, target: Target | None = None) -> TuningTask:
    """A product with a constant matrix."""
    a, b = te.placeholder("a", (m, k), dtypes.float32), te.placeholder("b", (k, n), dtypes.float32)
    product = te.contraction(MatMul(a, b), (m, n), dtypes.float32)
    recipe = Recipe((Output("y", te.compute((m, n), lambda i, j: product[i, j] * 2.0)),), {}, target or host())
    return _task(recipe, "b", b.shape)


def attention_task(rows: int = 40, depth: int = 24, target: Target | None = None) -> TuningTask:
    """Attention of two heads."""
    shape = (2, rows, depth)
    views = tuple(Viewed(te.placeholder(name, shape, dtypes.float32), Strided.contiguous(shape)) for name in "qkv")
    operator = Attention(*views, (), (), depth**-0.5, (0, 1, 2))
    weighed = te.contraction(operator, shape, dtypes.float32)
    result = te.compute(shape, lambda h, i, j: weighed[h, i, j] + 1.0)
    task = task_of(Recipe((Output("y", result),), {}, target or host()), lambda name: None, Choices(), ("node",), "Attention")
    assert task is not None
    return task


def nest_task(rows: int = 40, columns: int = 300, target: Target | None = None) -> TuningTask:
    """The sum of each row, taken from its elements."""
    x = te.placeholder("x", (rows, columns), dtypes.float32)
    total = te.reduce("sum", (rows,), (columns,), lambda i, j: x[i, j])
    result = te.compute((rows, columns), lambda i, j: x[i, j] - total[i])
    task = task_of(Recipe((Output("y", result),), {}, target or host()), lambda name: None, Choices(), ("node",), "Sub")
    assert task is not None
    return task


def _task(recipe: Recipe, weight: str, shape: tuple[int, ...]) -> TuningTask:
    weights = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    task = task_of(recipe, lambda name: weights if name == weight else None, Choices(), ("node",), "Conv")
    assert task is not None
    return replace(task, nodes=("node",))
