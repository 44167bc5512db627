"""acl.blas: C = alpha * op(A) * op(B) + beta * C on row-major matrices, by the operator GEMM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.operator_execution import new_handle
from anycann.acl.operator_models import OPERATORS
from anycann.acl.process import PROCESS
from anycann.acl.runs import run_program
from anycann.acl.util import check_readable, view_at
from anycann.om.operator_spec import OperandSpec, OperatorSpec
from anycann.support.errors import AnyCANNError, describe

FLOAT, HALF, INT8, INT32 = 0, 1, 2, 3
_COMBINATIONS = ((HALF, HALF, HALF), (HALF, HALF, FLOAT), (FLOAT, FLOAT, FLOAT), (INT8, INT8, INT32), (INT8, INT8, FLOAT))
_NATURAL = -1  # a leading dimension that is the number of columns


@dataclass(frozen=True)
class Matrix:
    """`rows` x `columns` in memory, `pitch` elements from row to row; it stands transposed in the product if `transposed`."""

    address: int
    rows: int
    columns: int
    pitch: int
    data_type: int

    def array(self, role: str) -> np.ndarray:
        """A view. Raises AclError for memory that is not there or too small."""
        dtype = types.numpy_dtype_of(self.data_type)
        elements = (self.rows - 1) * self.pitch + self.columns
        if not self.address:
            raise AclError(Code.INVALID_PARAM, f"{role} is null")
        check_readable(self.address, elements * dtype.itemsize, role)
        flat = view_at(self.address, dtype, (elements,))
        return np.lib.stride_tricks.as_strided(flat, (self.rows, self.columns), (self.pitch * dtype.itemsize, dtype.itemsize))


@dataclass(frozen=True)
class Product:
    """One gemm, checked: sizes, transposes and data types."""

    transposed_a: bool
    transposed_b: bool
    m: int
    n: int
    k: int
    data_types: tuple[int, int, int]

    @classmethod
    def checked(
        cls, trans: tuple[int, int, int], sizes: tuple[int, int, int], data_types: tuple[int, int, int], compute_type: int
    ) -> Product:
        """Raises AclError for what a product may not be."""
        for role, transpose, accepted in zip("ABC", trans, ((0, 1), (0, 1), (0,)), strict=True):
            if transpose not in accepted:
                words = " or ".join(f"{each} ({'not ' * (not each)}transposed)" for each in accepted)
                raise AclError(Code.INVALID_PARAM, f"trans{role} is {transpose}; accepted: {words}; NZ formats are not there")
        if min(sizes) <= 0:
            raise AclError(Code.INVALID_PARAM, f"m, n and k are {sizes}; accepted: at least 1")
        if data_types not in _COMBINATIONS:
            known = "; ".join(", ".join(types.DATA_TYPES[each] for each in row) for row in _COMBINATIONS)
            raise AclError(Code.INVALID_PARAM, f"data types of A, B and C are {data_types}; accepted: {known}")
        if compute_type not in (0, 1):
            raise AclError(Code.INVALID_PARAM, f"compute type is {compute_type}; accepted: 0 (high precision), 1")
        return cls(bool(trans[0]), bool(trans[1]), *sizes, data_types)

    @property
    def stored(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Rows and columns of A, B and C as they lie in memory."""
        a = (self.k, self.m) if self.transposed_a else (self.m, self.k)
        return a, (self.n, self.k) if self.transposed_b else (self.k, self.n), (self.m, self.n)

    def call(self) -> OperatorSpec:
        """The operator; its inputs are A, B, C, alpha and beta."""
        names = [types.DATA_TYPES[each] for each in self.data_types]
        matrices = [OperandSpec(name, shape) for name, shape in zip(names, self.stored, strict=True)]
        scalar = OperandSpec(names[2], (1,))
        return OperatorSpec(
            "GEMM", (*matrices, scalar, scalar), (matrices[2],), {"transpose_a": self.transposed_a, "transpose_b": self.transposed_b}
        )

    def submit(self, addresses: tuple[int, int, int], pitches: tuple[int, int, int], alpha: int, beta: int, stream: int) -> None:
        """Run it in a stream. Raises AclError for memory that is not there."""
        matrices = []
        for role, address, (rows, columns), pitch, data_type in zip("ABC", addresses, self.stored, pitches, self.data_types, strict=True):
            if pitch != _NATURAL and pitch < columns:
                raise AclError(
                    Code.INVALID_PARAM, f"ld{role.lower()} is {pitch}; accepted: -1, or at least the {columns} columns of {role}"
                )
            matrices.append(Matrix(address, rows, columns, columns if pitch == _NATURAL else pitch, data_type))
        scalars = [Matrix(address, 1, 1, 1, self.data_types[2]) for address in (alpha, beta)]
        call, found = self.call(), PROCESS.stream(stream)
        model = OPERATORS.find(call)

        def run() -> None:
            a, b, c = (matrix.array(role) for role, matrix in zip("ABC", matrices, strict=True))
            factors = [matrix.array(role).reshape(1) for role, matrix in zip(("alpha", "beta"), scalars, strict=True)]
            try:
                (result,) = run_program(model.program(call), [a, b, c, *factors], None, model, call.op)
            except AnyCANNError as error:
                raise AclError(Code.RT_MODEL_EXECUTE, describe(error)) from error
            c[...] = result

        for role, matrix in zip(("A", "B", "C", "alpha", "beta"), (*matrices, *scalars), strict=True):
            matrix.array(role)  # refuse now what cannot be read
        found.submit(run)


@status("acl.blas.gemm_ex", limits="matrices in NZ format are refused")
def gemm_ex(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, type_a: int, b: int, ldb: int,
    type_b: int, beta: int, c: int, ldc: int, type_c: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """C = alpha * op(A) @ op(B) + beta * C, row-major. lda, ldb, ldc: elements from row to row (-1: no gaps).

    alpha and beta are addresses of a number of C's data type.
    """
    product = Product.checked((trans_a, trans_b, trans_c), (m, n, k), (type_a, type_b, type_c), compute_type)
    product.submit((a, b, c), (lda, ldb, ldc), alpha, beta, stream)


@status("acl.blas.hgemm", limits="matrices in NZ format are refused")
def hgemm(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int,
    ldc: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """As gemm_ex, all of it float16."""
    product = Product.checked((trans_a, trans_b, trans_c), (m, n, k), (HALF, HALF, HALF), compute_type)
    product.submit((a, b, c), (lda, ldb, ldc), alpha, beta, stream)


@status("acl.blas.s8gemm", limits="matrices in NZ format are refused")
def s8gemm(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int,
    ldc: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """As gemm_ex: A and B are int8; C, alpha and beta int32."""
    product = Product.checked((trans_a, trans_b, trans_c), (m, n, k), (INT8, INT8, INT32), compute_type)
    product.submit((a, b, c), (lda, ldb, ldc), alpha, beta, stream)


@status("acl.blas.gemv_ex", limits="matrices in NZ format are refused")
def gemv_ex(
    trans_a: int, m: int, n: int, alpha: int, a: int, lda: int, type_a: int, x: int, incx: int, type_x: int, beta: int, y: int, incy: int,
    type_y: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """y = alpha * op(A) @ x + beta * y; A has m rows and n columns as it lies in memory. incx, incy: -1, as Ascend wants, or 1."""
    _multiply_vector(trans_a, m, n, (type_a, type_x, type_y), alpha, a, lda, x, incx, beta, y, incy, compute_type, stream)


@status("acl.blas.hgemv", limits="matrices in NZ format are refused")
def hgemv(
    trans_a: int, m: int, n: int, alpha: int, a: int, lda: int, x: int, incx: int, beta: int, y: int, incy: int, compute_type: int,
    stream: int,
) -> None:  # fmt: skip
    """As gemv_ex, all of it float16."""
    _multiply_vector(trans_a, m, n, (HALF, HALF, HALF), alpha, a, lda, x, incx, beta, y, incy, compute_type, stream)


@status("acl.blas.s8gemv", limits="matrices in NZ format are refused")
def s8gemv(
    trans_a: int, m: int, n: int, alpha: int, a: int, lda: int, x: int, incx: int, beta: int, y: int, incy: int, compute_type: int,
    stream: int,
) -> None:  # fmt: skip
    """As gemv_ex: A and x are int8; y, alpha and beta int32."""
    _multiply_vector(trans_a, m, n, (INT8, INT8, INT32), alpha, a, lda, x, incx, beta, y, incy, compute_type, stream)


def _multiply_vector(
    trans_a: int, m: int, n: int, data_types: tuple[int, int, int], alpha: int, a: int, lda: int, x: int, incx: int, beta: int, y: int,
    incy: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    for name, step in (("incx", incx), ("incy", incy)):
        if step not in (_NATURAL, 1):
            raise AclError(Code.INVALID_PARAM, f"{name} is {step}; accepted: -1, 1")
    product = _matrix_by_vector(trans_a, m, n, data_types, compute_type)
    product.submit((a, x, y), (lda, _NATURAL, _NATURAL), alpha, beta, stream)


def _matrix_by_vector(trans_a: int, m: int, n: int, data_types: tuple[int, int, int], compute_type: int) -> Product:
    rows, columns = (n, m) if trans_a == 1 else (m, n)
    return Product.checked((trans_a, 0, 0), (rows, 1, columns), data_types, compute_type)


@value_and_status("acl.blas.create_handle_for_gemm_ex", returns="(handle, ret)", limits="matrices in NZ format are refused")
def create_handle_for_gemm_ex(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, type_a: int, type_b: int, type_c: int, compute_type: int
) -> int:
    """A handle for acl.op.execute_with_handle, whose inputs are A, B, C, alpha and beta, and whose output is C."""
    return new_handle(Product.checked((trans_a, trans_b, trans_c), (m, n, k), (type_a, type_b, type_c), compute_type).call())


@value_and_status("acl.blas.create_handle_for_hgemm", returns="(handle, ret)", limits="matrices in NZ format are refused")
def create_handle_for_hgemm(trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, compute_type: int) -> int:
    """As create_handle_for_gemm_ex, all of it float16."""
    return new_handle(Product.checked((trans_a, trans_b, trans_c), (m, n, k), (HALF, HALF, HALF), compute_type).call())


@value_and_status("acl.blas.create_handle_for_s8gemm", returns="(handle, ret)", limits="matrices in NZ format are refused")
def create_handle_for_s8gemm(trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, compute_type: int) -> int:
    """As create_handle_for_gemm_ex: A and B are int8; C, alpha and beta int32."""
    return new_handle(Product.checked((trans_a, trans_b, trans_c), (m, n, k), (INT8, INT8, INT32), compute_type).call())


@value_and_status("acl.blas.create_handle_for_gemv_ex", returns="(handle, ret)", limits="matrices in NZ format are refused")
def create_handle_for_gemv_ex(trans_a: int, m: int, n: int, type_a: int, type_x: int, type_y: int, compute_type: int) -> int:
    """A handle for acl.op.execute_with_handle, whose inputs are A, x, y, alpha and beta, and whose output is y."""
    return new_handle(_matrix_by_vector(trans_a, m, n, (type_a, type_x, type_y), compute_type).call())


@value_and_status("acl.blas.create_handle_for_hgemv", returns="(handle, ret)", limits="matrices in NZ format are refused")
def create_handle_for_hgemv(trans_a: int, m: int, n: int, compute_type: int) -> int:
    """As create_handle_for_gemv_ex, all of it float16."""
    return new_handle(_matrix_by_vector(trans_a, m, n, (HALF, HALF, HALF), compute_type).call())


@value_and_status("acl.blas.create_handle_for_s8gemv", returns="(handle, ret)", limits="matrices in NZ format are refused")
def create_handle_for_s8gemv(trans_a: int, m: int, n: int, compute_type: int) -> int:
    """As create_handle_for_gemv_ex: A and x are int8; y, alpha and beta int32."""
    return new_handle(_matrix_by_vector(trans_a, m, n, (INT8, INT8, INT32), compute_type).call())
