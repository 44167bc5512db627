"""Matrix products: MatMul, Gemm, Einsum, and their fused forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.activations import activation
from anycann.graph.ops.common import broadcast_index, floats, integer, integers, retyped
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import MatMul
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Placeholder, Tensor

ACCUMULATORS: dict[DType, DType] = {dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32}


def product(a: Tensor, b: Tensor, shape: Sequence[int], transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """a @ b of the given shape, in the type sums are kept in (float32 for 16-bit floats)."""
    dtype = ACCUMULATORS.get(a.dtype, a.dtype)
    floating = a.dtype.is_float and isinstance(a, Placeholder) and isinstance(b, Placeholder)
    if floating and a.rank > 1 and b.rank > 1:
        return te.contraction(MatMul(a, b, transpose_a, transpose_b), shape, dtype)
    return _plain_product(a, b, shape, transpose_a, transpose_b, dtype)


def _plain_product(a: Tensor, b: Tensor, shape: Sequence[int], transpose_a: bool, transpose_b: bool, dtype: DType) -> Tensor:
    """Vectors, integers and literals: one sum an element."""
    depth = a.shape[-2 if transpose_a and a.rank > 1 else -1]

    def element(*index: Expr) -> Expr:
        *rest, k = index
        column = rest.pop() if b.rank > 1 else None
        row = rest.pop() if a.rank > 1 else None
        left = _place(a, rest, row, k) if not transpose_a else _place(a, rest, k, row)
        right = _place(b, rest, k, column) if not transpose_b else _place(b, rest, column, k)
        return x.cast(a[left], dtype) * x.cast(b[right], dtype)

    return te.reduce("sum", shape, (depth,), element)


def _place(tensor: Tensor, batch: Sequence[Expr], row: Expr | None, column: Expr | None) -> tuple[Expr, ...]:
    ends = [place for place in (row, column) if place is not None]
    own = batch[len(batch) - (tensor.rank - len(ends)) :]
    return broadcast_index(tensor, [*own, *ends])


def scaled(value: Expr, factor: float) -> Expr:
    """value * factor, for floats and whole factors. Raises NotLowered for an integer times a fraction."""
    if factor == 1:
        return value
    if not value.dtype.is_float and factor != int(factor):
        raise NotLowered(f"an integer product scaled by {factor}")
    return value * (factor if value.dtype.is_float else int(factor))


def _in_type(sums: Tensor, type_: TensorType) -> Tensor:
    return te.compute(type_.shape, lambda *index: x.cast(sums[index], type_.dtype))


# ---- MatMul
def _matmul_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b in (
        ((5, 7), (7, 20)), ((2, 5, 7), (7, 3)), ((2, 3, 5, 7), (2, 3, 7, 4)), ((2, 1, 5, 7), (3, 7, 4)), ((7,), (7, 20)), ((5, 7), (7,)),
        ((7,), (7,)), ((2, 3, 5, 7), (7,)), ((7,), (2, 7, 3)), ((1, 70), (70, 1)), ((3, 1), (1, 4)),
    ):  # fmt: skip
        yield Sample((floats(rng, *a), floats(rng, *b)))
    yield from retyped(Sample((floats(rng, 5, 7), floats(rng, 7, 20))), ("float64", "float16", "int32", "int64", "uint32"))


@operator("MatMul", samples=_matmul_samples)
def matmul(context: Lowering) -> Tensor:
    """numpy.matmul: vectors are rows or columns, leading axes broadcast."""
    type_ = context.outputs[0]
    return _in_type(product(context.operand(0), context.operand(1), type_.shape), type_)


# ---- Gemm
def _gemm_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b, c, attributes in (
        ((5, 7), (7, 20), (20,), {}), ((5, 7), (20, 7), (5, 1), {"transB": 1, "alpha": 0.5}),
        ((7, 5), (7, 3), (5, 3), {"transA": 1, "beta": 2.0}),
        ((7, 5), (3, 7), (1, 3), {"transA": 1, "transB": 1, "alpha": 2.0, "beta": 0.5}), ((5, 7), (7, 3), None, {"alpha": -1.0}),
        ((5, 7), (7, 3), (), {"beta": 0.0}),
    ):  # fmt: skip
        yield Sample((floats(rng, *a), floats(rng, *b), None if c is None else floats(rng, *c)), dict(attributes))
    yield from retyped(Sample((floats(rng, 5, 7), floats(rng, 7, 20), floats(rng, 20))), ("float64", "int32"))


def gemm_of(context: Lowering, finish: Callable[[Expr], Expr] = lambda a: a) -> Tensor:
    """finish(alpha * A' B' + beta * C)."""
    type_, alpha, beta = context.outputs[0], context.number("alpha", 1.0), context.number("beta", 1.0)
    transpose_a, transpose_b = bool(context.integer("transA")), bool(context.integer("transB"))
    result = product(context.operand(0), context.operand(1), type_.shape, transpose_a, transpose_b)
    addend = context.operand(2) if context.has(2) and beta != 0 else None

    def element(*index: Expr) -> Expr:
        value = scaled(result[index], alpha)
        if addend is not None:
            value = value + scaled(x.cast(addend[broadcast_index(addend, index)], value.dtype), beta)
        return x.cast(finish(value), type_.dtype)

    return te.compute(type_.shape, element)


@operator("Gemm", samples=_gemm_samples)
def gemm(context: Lowering) -> Tensor:
    """alpha * A' B' + beta * C with C broadcast."""
    return gemm_of(context)


def _infer_gemm(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    a, b = inputs[0], inputs[1]
    assert a is not None
    assert b is not None
    rows = a.shape[1 if node.attributes.get_int("transA", 0) else 0]
    columns = b.shape[0 if node.attributes.get_int("transB", 0) else 1]
    return [TensorType(a.dtype, (rows, columns))]


def _fused_gemm_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for name in ("Relu", "LeakyRelu", "Sigmoid"):
        attributes: dict[str, object] = {"activation": name, "activation_alpha": 0.3, "transB": 1}
        yield Sample((floats(rng, 5, 7), floats(rng, 20, 7), floats(rng, 20)), attributes)


@operator("FusedGemm", domain="com.microsoft", samples=_fused_gemm_samples, infer=_infer_gemm)
def fused_gemm(context: Lowering) -> Tensor:
    """Gemm, then the activation that the attributes name."""
    given = {"alpha": context.number("activation_alpha", 0.01), "beta": context.number("activation_beta", 0.0)}
    return gemm_of(context, activation(context.text("activation"), [given["alpha"], given["beta"]]))


# ---- FusedMatMul
def _infer_fused(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    a, b = inputs[0], inputs[1]
    assert a is not None
    assert b is not None
    left = _swapped(a.shape, node.attributes.get_int("transA", 0))
    right = _swapped(b.shape, node.attributes.get_int("transB", 0))
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    rows, columns = (left[-2],) if len(left) > 1 else (), (right[-1],) if len(right) > 1 else ()
    return [TensorType(a.dtype, (*batch, *rows, *columns))]


def _swapped(shape: tuple[int, ...], transposed: int) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed and len(shape) > 1 else shape


def _fused_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b, attributes in (
        ((5, 7), (7, 20), {"alpha": 0.5}),
        ((2, 7, 5), (2, 7, 3), {"transA": 1}), ((2, 3, 5, 7), (2, 3, 4, 7), {"transB": 1, "alpha": 0.125}),
    ):  # fmt: skip
        yield Sample((floats(rng, *a), floats(rng, *b)), dict(attributes))


@operator("FusedMatMul", domain="com.microsoft", samples=_fused_samples, infer=_infer_fused)
def fused_matmul(context: Lowering) -> Tensor:
    """alpha * A' B'."""
    if context.integer("transBatchA") or context.integer("transBatchB"):
        raise NotLowered("a matrix product with a transposed batch axis")
    type_, alpha = context.outputs[0], context.number("alpha", 1.0)
    transpose_a, transpose_b = bool(context.integer("transA")), bool(context.integer("transB"))
    result = product(context.operand(0), context.operand(1), type_.shape, transpose_a, transpose_b)
    return te.compute(type_.shape, lambda *index: x.cast(scaled(result[index], alpha), type_.dtype))


# ---- Einsum
def _einsum_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for equation, *shapes in (
        ("ij,jk->ik", (5, 7), (7, 20)), ("bij,bkj->bik", (2, 5, 7), (2, 3, 7)), ("bhid,bhjd->bhij", (2, 3, 5, 7), (2, 3, 4, 7)),
        ("ij,jk->ki", (5, 7), (7, 3)), ("bij,jk", (2, 5, 7), (7, 3)), ("ij->ji", (5, 17)),
        ("ij->i", (5, 17)), ("ii->i", (5, 5)), ("ii", (5, 5)),
        ("i,j->ij", (5,), (17,)), ("...ij,...jk->...ik", (2, 5, 7), (1, 7, 3)), ("bthd,bshd->bhts", (2, 5, 3, 4), (2, 6, 3, 4)),
        ("ij,ij,j->i", (5, 17), (5, 17), (17,)), ("bic, ck -> bik", (2, 3, 5), (5, 4)), ("i,i->", (37,), (37,)),
        ("ij,ij->ji", (5, 7), (5, 7)), ("ki,ji->ji", (2, 5), (3, 5)),
    ):  # fmt: skip
        yield Sample(tuple(floats(rng, *shape) for shape in shapes), {"equation": equation})
    yield Sample((integers(rng, 3, 4), integers(rng, 4, 5)), {"equation": "ij,jk->ik"})


def parse_einsum(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of each operand and of the result; an ellipsis becomes digits, counted from the last axis."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise NotLowered(f"the equation {equation!r} for {len(ranks)} operands")
    spans = [rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)]
    dots = "9876543210"[10 - max(spans, default=0) :]
    operands = [term.replace("...", dots[len(dots) - span :]) for term, span in zip(terms, spans, strict=True)]
    if any(len(term) != rank for term, rank in zip(operands, ranks, strict=True)):
        raise NotLowered(f"the equation {equation!r} for operands of ranks {list(ranks)}")
    if arrow:
        return operands, right.replace("...", dots)
    counts = "".join(operands)
    return operands, dots + "".join(sorted(c for c in set(counts) if counts.count(c) == 1 and not c.isdigit()))


@operator("Einsum", samples=_einsum_samples)
def einsum(context: Lowering) -> Tensor:
    """A matrix product where the equation is one, else one sum an element."""
    operands = [context.operand(n) for n in range(len(context.inputs))]
    terms, result = parse_einsum(context.text("equation"), [t.rank for t in operands])
    type_ = context.outputs[0]
    if len(operands) == 2:
        for a, b in ((0, 1), (1, 0)):
            found = _as_matmul(terms[a], terms[b], result)
            if found is not None:
                return _in_type(product(operands[a], operands[b], type_.shape, *found), type_)
    return _sum_of_products(operands, terms, result, type_)


def _as_matmul(a: str, b: str, result: str) -> tuple[bool, bool] | None:
    """(transpose_a, transpose_b) if the labels say batch, m, k times batch, k, n gives batch, m, n."""
    if len(result) < 2 or any(len(set(term)) != len(term) for term in (a, b, result)):
        return None
    batch, m, n = result[:-2], result[-2], result[-1]
    if len(a) != len(batch) + 2 or len(b) != len(batch) + 2 or a[:-2] != batch or b[:-2] != batch:
        return None
    inner = [label for label in a[-2:] if label != m]
    if len(inner) != 1 or {inner[0], n} != set(b[-2:]):
        return None
    return a[-2] != m, b[-1] != n


def _sum_of_products(operands: Sequence[Tensor], terms: Sequence[str], result: str, type_: TensorType) -> Tensor:
    extents: dict[str, int] = {}
    for tensor, term in zip(operands, terms, strict=True):
        for label, extent in zip(term, tensor.shape, strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    inner = [label for label in extents if label not in result]
    dtype = ACCUMULATORS.get(type_.dtype, type_.dtype)

    def element(*index: Expr) -> Expr:
        places = dict(zip([*result, *inner], index, strict=True))
        total: Expr | None = None
        for tensor, term in zip(operands, terms, strict=True):
            own = [integer(0) if extent == 1 else places[label] for label, extent in zip(term, tensor.shape, strict=True)]
            value = x.cast(tensor[tuple(own)], dtype)
            total = value if total is None else total * value
        assert total is not None
        return total

    return _in_type(te.reduce("sum", type_.shape, [extents[label] for label in inner], element), type_)
