"""acl.blas: C = alpha * op(A) * op(B) + beta * C on row-major matrices, by the operator GEMM."""

from __future__ import annotations

import math

import numpy as np

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.operator_execution import new_handle
from anycann.acl.operator_models import OPERATORS
from anycann.acl.process import PROCESS
from anycann.acl.runs import failure, run_program
from anycann.acl.util import check_readable, view_at
from anycann.om.operator_spec import OperandSpec, OperatorSpec
from anycann.support.errors import AnyCANNError
from anycann.support.records import dataclass

FLOAT, HALF, INT8, INT32 = 0, 1, 2, 3
_COMBINATIONS = ((HALF, HALF, HALF), (HALF, HALF, FLOAT), (FLOAT, FLOAT, FLOAT), (INT8, INT8, INT32), (INT8, INT8, FLOAT))
PLAIN, TRANSPOSED, NZ = 0, 1, 2  # aclTransType
_FORMS = {PLAIN: "not transposed", TRANSPOSED: "transposed", NZ: "NZ"}
_NATURAL = -1  # a leading dimension that is the number of columns


@dataclass(frozen=True)
class Matrix:
    """A tensor in memory whose rows lie `pitch` elements apart."""

    address: int
    shape: tuple[int, ...]
    pitch: int
    data_type: int

    def array(self, role: str) -> np.ndarray:
        """A view. Raises AclError for memory that is not there or too small."""
        dtype = types.numpy_dtype_of(self.data_type)
        rows, columns = math.prod(self.shape[:-1]), self.shape[-1]
        elements = (rows - 1) * self.pitch + columns
        if not self.address:
            raise AclError(Code.INVALID_PARAM, f"{role} is null")
        check_readable(self.address, elements * dtype.itemsize, role)
        flat = view_at(self.address, dtype, (elements,))
        if self.pitch == columns:
            return flat.reshape(self.shape)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (self.pitch * dtype.itemsize, dtype.itemsize))


@dataclass(frozen=True)
class Product:
    """One gemm, checked: sizes, data types, and how A and B lie: PLAIN, TRANSPOSED or NZ, padded blocks as the chip has them."""

    forms: tuple[int, int]
    m: int
    n: int
    k: int
    data_types: tuple[int, int, int]

    @classmethod
    def checked(
        cls, trans: tuple[int, int, int], sizes: tuple[int, int, int], data_types: tuple[int, int, int], compute_type: int
    ) -> Product:
        """Raises AclError for what a product may not be."""
        for role, form, accepted in zip("ABC", trans, (tuple(_FORMS), tuple(_FORMS), (PLAIN,)), strict=True):
            if form not in accepted:
                words = ", ".join(f"{each} ({_FORMS[each]})" for each in accepted)
                raise AclError(Code.INVALID_PARAM, f"trans{role} is {form}; accepted: {words}")
        if min(sizes) <= 0:
            raise AclError(Code.INVALID_PARAM, f"m, n and k are {sizes}; accepted: at least 1")
        if data_types not in _COMBINATIONS:
            known = "; ".join(", ".join(types.DATA_TYPES[each] for each in row) for row in _COMBINATIONS)
            raise AclError(Code.INVALID_PARAM, f"data types of A, B and C are {data_types}; accepted: {known}")
        if compute_type not in (0, 1):
            raise AclError(Code.INVALID_PARAM, f"compute type is {compute_type}; accepted: 0 (high precision), 1")
        return cls(trans[:2], *sizes, data_types)

    @property
    def stored(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The sizes of A, B and C as they lie in memory."""
        a, b = (self._stored(*each) for each in zip(self.forms, ((self.m, self.k), (self.k, self.n)), self.data_types, strict=False))
        return a, b, (self.m, self.n)

    @staticmethod
    def _stored(form: int, sizes: tuple[int, int], data_type: int) -> tuple[int, ...]:
        if form == NZ:
            return tuple(types.fractal_dims(sizes, data_type))
        return sizes[::-1] if form == TRANSPOSED else sizes

    def call(self) -> OperatorSpec:
        """The operator; its inputs are A, B, C, alpha and beta."""
        names = [types.DATA_TYPES[each] for each in self.data_types]
        formats = ["FRACTAL_NZ" if form == NZ else "ND" for form in (*self.forms, PLAIN)]
        matrices = [OperandSpec(*each) for each in zip(names, self.stored, formats, strict=True)]
        scalar, transposed = OperandSpec(names[2], (1,)), [form == TRANSPOSED for form in self.forms]
        return OperatorSpec(
            "GEMM", (*matrices, scalar, scalar), (matrices[2],), {"transpose_a": transposed[0], "transpose_b": transposed[1]}
        )

    def submit(self, addresses: tuple[int, int, int], pitches: tuple[int, int, int], alpha: int, beta: int, stream: int) -> None:
        """Run it in a stream. Raises AclError for memory that is not there."""
        matrices = []
        parts = zip("ABC", addresses, self.stored, pitches, (*self.forms, PLAIN), self.data_types, strict=True)
        for role, address, shape, pitch, form, data_type in parts:
            columns = shape[-1]
            if pitch != _NATURAL and (pitch < columns or form == NZ):
                words = "-1" if form == NZ else f"-1, or at least the {columns} columns of {role}"
                raise AclError(Code.INVALID_PARAM, f"ld{role.lower()} is {pitch}; accepted: {words}")
            matrices.append(Matrix(address, shape, columns if pitch == _NATURAL else pitch, data_type))
        scalars = [Matrix(address, (1,), 1, self.data_types[2]) for address in (alpha, beta)]
        call, found = self.call(), PROCESS.stream(stream)
        model = OPERATORS.find(call)

        def run() -> None:
            a, b, c = (matrix.array(role) for role, matrix in zip("ABC", matrices, strict=True))
            factors = [matrix.array(role) for role, matrix in zip(("alpha", "beta"), scalars, strict=True)]
            try:
                (result,) = run_program(model.program(call), [a, b, c, *factors], None, model, call.op)
            except AnyCANNError as error:
                raise failure(error, call.op) from error
            c[...] = result

        for role, matrix in zip(("A", "B", "C", "alpha", "beta"), (*matrices, *scalars), strict=True):
            matrix.array(role)  # refuse now what cannot be read
        found.submit(run)


@status("acl.blas.gemm_ex")
def gemm_ex(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, type_a: int, b: int, ldb: int,
    type_b: int, beta: int, c: int, ldc: int, type_c: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """C = alpha * op(A) @ op(B) + beta * C, row-major. lda, ldb, ldc: elements from row to row (-1: no gaps).

    alpha and beta are addresses of a number of C's data type.
    """
    product = Product.checked((trans_a, trans_b, trans_c), (m, n, k), (type_a, type_b, type_c), compute_type)
    product.submit((a, b, c), (lda, ldb, ldc), alpha, beta, stream)


@status("acl.blas.hgemm")
def hgemm(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int,
    ldc: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """As gemm_ex, all of it float16."""
    product = Product.checked((trans_a, trans_b, trans_c), (m, n, k), (HALF, HALF, HALF), compute_type)
    product.submit((a, b, c), (lda, ldb, ldc), alpha, beta, stream)


@status("acl.blas.s8gemm")
def s8gemm(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int, c: int,
    ldc: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """As gemm_ex: A and B are int8; C, alpha and beta int32."""
    product = Product.checked((trans_a, trans_b, trans_c), (m, n, k), (INT8, INT8, INT32), compute_type)
    product.submit((a, b, c), (lda, ldb, ldc), alpha, beta, stream)


@status("acl.blas.gemv_ex")
def gemv_ex(
    trans_a: int, m: int, n: int, alpha: int, a: int, lda: int, type_a: int, x: int, incx: int, type_x: int, beta: int, y: int, incy: int,
    type_y: int, compute_type: int, stream: int,
) -> None:  # fmt: skip
    """y = alpha * op(A) @ x + beta * y; A has m rows and n columns as it lies in memory. incx, incy: -1, as Ascend wants, or 1."""
    _multiply_vector(trans_a, m, n, (type_a, type_x, type_y), alpha, a, lda, x, incx, beta, y, incy, compute_type, stream)


@status("acl.blas.hgemv")
def hgemv(
    trans_a: int, m: int, n: int, alpha: int, a: int, lda: int, x: int, incx: int, beta: int, y: int, incy: int, compute_type: int,
    stream: int,
) -> None:  # fmt: skip
    """As gemv_ex, all of it float16."""
    _multiply_vector(trans_a, m, n, (HALF, HALF, HALF), alpha, a, lda, x, incx, beta, y, incy, compute_type, stream)


@status("acl.blas.s8gemv")
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
    rows, columns = (n, m) if trans_a == TRANSPOSED else (m, n)
    return Product.checked((trans_a, 0, 0), (rows, 1, columns), data_types, compute_type)


@value_and_status("acl.blas.create_handle_for_gemm_ex", returns="(handle, ret)")
def create_handle_for_gemm_ex(
    trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, type_a: int, type_b: int, type_c: int, compute_type: int
) -> int:
    """A handle for acl.op.execute_with_handle, whose inputs are A, B, C, alpha and beta, and whose output is C."""
    return new_handle(Product.checked((trans_a, trans_b, trans_c), (m, n, k), (type_a, type_b, type_c), compute_type).call())


@value_and_status("acl.blas.create_handle_for_hgemm", returns="(handle, ret)")
def create_handle_for_hgemm(trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, compute_type: int) -> int:
    """As create_handle_for_gemm_ex, all of it float16."""
    return new_handle(Product.checked((trans_a, trans_b, trans_c), (m, n, k), (HALF, HALF, HALF), compute_type).call())


@value_and_status("acl.blas.create_handle_for_s8gemm", returns="(handle, ret)")
def create_handle_for_s8gemm(trans_a: int, trans_b: int, trans_c: int, m: int, n: int, k: int, compute_type: int) -> int:
    """As create_handle_for_gemm_ex: A and B are int8; C, alpha and beta int32."""
    return new_handle(Product.checked((trans_a, trans_b, trans_c), (m, n, k), (INT8, INT8, INT32), compute_type).call())


@value_and_status("acl.blas.create_handle_for_gemv_ex", returns="(handle, ret)")
def create_handle_for_gemv_ex(trans_a: int, m: int, n: int, type_a: int, type_x: int, type_y: int, compute_type: int) -> int:
    """A handle for acl.op.execute_with_handle, whose inputs are A, x, y, alpha and beta, and whose output is y."""
    return new_handle(_matrix_by_vector(trans_a, m, n, (type_a, type_x, type_y), compute_type).call())


@value_and_status("acl.blas.create_handle_for_hgemv", returns="(handle, ret)")
def create_handle_for_hgemv(trans_a: int, m: int, n: int, compute_type: int) -> int:
    """As create_handle_for_gemv_ex, all of it float16."""
    return new_handle(_matrix_by_vector(trans_a, m, n, (HALF, HALF, HALF), compute_type).call())


@value_and_status("acl.blas.create_handle_for_s8gemv", returns="(handle, ret)")
def create_handle_for_s8gemv(trans_a: int, m: int, n: int, compute_type: int) -> int:
    """As create_handle_for_gemv_ex: A and x are int8; y, alpha and beta int32."""
    return new_handle(_matrix_by_vector(trans_a, m, n, (INT8, INT8, INT32), compute_type).call())
