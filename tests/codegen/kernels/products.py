"""Matrix product problems for the tests: operands as they lie in memory, the kernel, and its check against float64."""

from dataclasses import dataclass, replace

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulShape, MatmulTile, Strides, contiguous
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled

HOST = by_name("host")


@dataclass
class Problem:
    """Operands in logical form and as they lie in memory."""

    shape: MatmulShape
    a: np.ndarray
    b: np.ndarray
    a_memory: np.ndarray
    b_memory: np.ndarray

    @property
    def exact(self) -> np.ndarray:
        wide = np.float64 if self.shape.accumulator.is_float else np.int64
        return self.a.astype(wide) @ self.b.astype(wide)


def values(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return random.integers(max(limits.min, -1000), min(limits.max, 1000), shape, dtype.numpy, endpoint=True)


def problem(
    m: int,
    n: int,
    k: int,
    batch: tuple[int, ...] = (),
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_dtype: DType = dtypes.float32,
    b_dtype: DType = dtypes.float32,
    accumulator: DType = dtypes.float32,
) -> Problem:
    """Random operands, never the same twice."""
    random = np.random.default_rng()
    a, b = values(random, (*batch, m, k), a_dtype), values(random, (*batch, k, n), b_dtype)
    types = {"a_dtype": a_dtype, "b_dtype": b_dtype, "accumulator": accumulator}
    shape = contiguous(batch, m, n, k, transpose_a=transpose_a, transpose_b=transpose_b, **types)
    stored_a = np.swapaxes(a, -1, -2) if transpose_a else a
    stored_b = np.swapaxes(b, -1, -2) if transpose_b else b
    return Problem(shape, a, b, np.ascontiguousarray(stored_a), np.ascontiguousarray(stored_b))


def packed(p: Problem, target: Target, tile: MatmulTile) -> Problem:
    """The same product with B in panels."""
    shape = replace(
        p.shape, packed=True, b=Strides(tuple(np.cumprod([1, *p.shape.batch[:0:-1]])[::-1].tolist()) if p.shape.batch else (), 0, 0)
    )
    return replace(p, shape=shape, b_memory=matmul.pack_b(shape, target, tile, p.b))


def write(shape: MatmulShape, target: Target, tile: MatmulTile, inline: bool = False) -> tuple[Emitter, int]:
    e = Emitter()
    a, b, c = (e.argument(i) for i in range(3))
    strides = contiguous(shape.batch, shape.m, shape.n, shape.n).a
    writer = matmul.plain_writer(c, strides.batch, strides.row, 1, shape.accumulator)
    return e, matmul.emit_matmul(e, shape, target, tile, a, b, writer, inline=inline)


def compute(p: Problem, target: Target = HOST, tile: MatmulTile | None = None, inline: bool = False, parts: int = 3) -> np.ndarray:
    tile = tile or matmul.default_tile(p.shape, target)
    e, tasks = write(p.shape, target, tile, inline)
    c = np.full((*p.shape.batch, p.shape.m, p.shape.n), 77, p.shape.accumulator.numpy)
    Compiled(e, "matmul", target, matmul.scratch_bytes(p.shape, target, tile))([p.a_memory, p.b_memory, c], tasks, parts)
    return c


def check(p: Problem, **options: object) -> None:
    got = compute(p, **options)  # type: ignore[arg-type]
    if not p.shape.accumulator.is_float:
        np.testing.assert_array_equal(got, p.exact)
        return
    size = np.abs(p.a.astype(np.float64)) @ np.abs(p.b.astype(np.float64))
    unit = np.finfo(p.shape.accumulator.numpy).eps
    assert (np.abs(got - p.exact) <= 1e-30 + 2 * unit * np.sqrt(p.shape.k + 4) * size).all()
