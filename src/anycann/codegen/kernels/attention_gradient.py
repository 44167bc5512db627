"""Backward of attention: one head a task, some rows of its scores at a time, of which only these are ever in memory.

keys' and values' of a head are transposed once. For each block of rows
  weights[m, t] = softmax over t of scale * sum over d of query[m, d] keys'[d, t] + mask[m, t]
  slopes[m, t]  = sum over d of dy[m, d] values'[d, t];  slopes = weights * (slopes - sum over t of weights * slopes) * scale
  dquery[m, d] = sum over t of slopes[m, t] key[t, d]
  dkey[t, d] += sum over m of slopes[m, t] query[m, d];  dvalue[t, d] += sum over m of weights[m, t] dy[m, d]
Lanes run along t in the first two and along d in the others, so that no product needs more than one of its operands in order.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_softmax import exp_of_difference, greatest_lane
from anycann.codegen.kernels.block_product import Matrix, emit_product, product_width
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_shape import Operand, multiply_add
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

ROWS = 64  # of a block


@dataclass(frozen=True)
class AttentionGradientShape:
    """query [batch, heads, rows, depth], key [.., keys, depth], value [.., keys, width], dy [.., rows, width], float32 and row-major.

    mask: elements of it to the next image, head and row, those of a row side by side; None: there is none. causal: row m sees the keys up
    to m.
    """

    batch: int
    heads: int
    rows: int
    keys: int
    depth: int
    width: int
    scale: float
    causal: bool
    mask: tuple[int, int, int] | None = None

    @property
    def flops(self) -> int:
        """Of all keys, whatever is masked."""
        return 2 * self.batch * self.heads * self.rows * self.keys * (3 * self.depth + 2 * self.width)


@dataclass(frozen=True)
class Tensors:
    """Operands and results; a result that nobody wants is None."""

    dy: Value
    query: Value
    key: Value
    value: Value
    mask: Value | None
    dquery: Value | None
    dkey: Value | None
    dvalue: Value | None


def _padded(shape: AttentionGradientShape, target: Target) -> int:
    """Keys in whole tiles."""
    width = product_width(target, shape.keys)
    return -(-shape.keys // width) * width


def gradient_scratch(shape: AttentionGradientShape, target: Target) -> int:
    """Bytes of scratch memory: keys and values transposed, weights and slopes of a block of rows."""
    return 4 * _padded(shape, target) * (shape.depth + shape.width + 2 * min(ROWS, shape.rows))


@dataclass(frozen=True)
class _Head:
    """One head: its number among all, and its parts of the tensors."""

    number: Value
    image: Value
    head: Value


@dataclass(frozen=True)
class _Kernel:
    shape: AttentionGradientShape
    target: Target
    tensors: Tensors

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    @property
    def padded(self) -> int:
        return _padded(self.shape, self.target)

    def scratch(self, e: Emitter, name: str) -> Value:
        """keys' [depth, padded], values' [width, padded], weights and slopes [rows, padded]."""
        sizes = {"keys": self.shape.depth, "values": self.shape.width, "weights": min(ROWS, self.shape.rows), "slopes": 0}
        names = list(sizes)
        return e.gep(e.scratch, self.padded * sum(sizes[n] for n in names[: names.index(name)]), "float")

    def part(self, e: Emitter, tensor: Value, head: _Head, rows: int, columns: int) -> Value:
        """The matrix of a head in a tensor of matrices of rows x columns."""
        return e.gep(tensor, e.mul(head.number, rows * columns), "float")


def emit_attention_gradient(e: Emitter, shape: AttentionGradientShape, target: Target, tensors: Tensors) -> int:
    """Write the tasks e.begin..e.end; returns how many there are: the heads."""
    kernel = _Kernel(shape, target, tensors)
    with e.loop(e.begin, e.end) as task:
        image, number = digits(e, task.index, [shape.batch, shape.heads])
        head = _Head(task.index, image, number)
        _transpose(e, kernel, kernel.part(e, tensors.key, head, shape.keys, shape.depth), shape.depth, kernel.scratch(e, "keys"))
        _transpose(e, kernel, kernel.part(e, tensors.value, head, shape.keys, shape.width), shape.width, kernel.scratch(e, "values"))
        for result, columns in ((tensors.dkey, shape.depth), (tensors.dvalue, shape.width)):
            if result is not None:
                _clear(e, kernel, kernel.part(e, result, head, shape.keys, columns), shape.keys * columns)
        with e.loop(0, shape.rows, ROWS) as block:
            count = e.smin(e.const(min(ROWS, shape.rows)), e.sub(e.const(shape.rows), block.index))
            _block(e, kernel, head, block.index, count)
    return shape.batch * shape.heads


def _transpose(e: Emitter, kernel: _Kernel, source: Value, columns: int, to: Value) -> None:
    """to[column][row] of the keys x columns matrix at `source`; rows that do not exist mean nothing."""
    shape, operand = kernel.shape, Operand(dtypes.float32, dtypes.float32)
    rest = columns % kernel.lanes or None
    copy = PanelCopy(operand, 1, columns, shape.keys, kernel.padded, kernel.lanes, rest)
    emit_copy(e, copy, source, e.const(columns), to)


def _clear(e: Emitter, kernel: _Kernel, to: Value, count: int) -> None:
    whole = count - count % kernel.lanes
    for start, stop, width in ((0, whole, kernel.lanes), (whole, count, 1)):
        with e.loop(start, stop, width) as at:
            e.store(e.zero(vector_type("float", width)), e.gep(to, at.index, "float"), 4)


def _block(e: Emitter, kernel: _Kernel, head: _Head, first: Value, count: Value) -> None:
    """Everything that some rows of the scores take part in."""
    shape, tensors, padded = kernel.shape, kernel.tensors, kernel.padded
    seen = e.smin(e.const(shape.keys), e.add(first, count)) if shape.causal else e.const(shape.keys)
    query = e.gep(kernel.part(e, tensors.query, head, shape.rows, shape.depth), e.mul(first, shape.depth), "float")
    dy = e.gep(kernel.part(e, tensors.dy, head, shape.rows, shape.width), e.mul(first, shape.width), "float")
    weights, slopes = (Matrix(kernel.scratch(e, name), padded, 1) for name in ("weights", "slopes"))
    queries, gradients = Matrix(query, shape.depth, 1), Matrix(dy, shape.width, 1)
    target = kernel.target
    emit_product(e, target, queries, Matrix(kernel.scratch(e, "keys"), padded, 1), weights, count, seen, e.const(shape.depth))
    emit_product(e, target, gradients, Matrix(kernel.scratch(e, "values"), padded, 1), slopes, count, seen, e.const(shape.width))
    with e.loop(0, count) as row:
        _row(e, kernel, head, e.add(first, row.index), row.index)
    if tensors.dquery is not None:
        result = e.gep(kernel.part(e, tensors.dquery, head, shape.rows, shape.depth), e.mul(first, shape.depth), "float")
        key = Matrix(kernel.part(e, tensors.key, head, shape.keys, shape.depth), shape.depth, 1)
        emit_product(e, target, slopes, key, Matrix(result, shape.depth, 1), count, shape.depth, seen)
    for factor, other, part, columns in ((slopes, queries, tensors.dkey, shape.depth), (weights, gradients, tensors.dvalue, shape.width)):
        if part is not None:
            result = kernel.part(e, part, head, shape.keys, columns)
            emit_product(e, target, factor.transposed, other, Matrix(result, columns, 1), seen, columns, count, adds=True)


# ---- rows of scores
def _row(e: Emitter, kernel: _Kernel, head: _Head, number: Value, row: Value) -> None:
    """weights = softmax of the scores; slopes = weights * (slopes - sum of weights * slopes) * scale."""
    shape, lanes = kernel.shape, kernel.lanes
    weights = e.gep(kernel.scratch(e, "weights"), e.mul(row, kernel.padded), "float")
    slopes = e.gep(kernel.scratch(e, "slopes"), e.mul(row, kernel.padded), "float")
    # the products were computed for whole tiles, so that whole vectors may be read; what is not seen becomes -inf here
    seen = e.smin(e.const(shape.keys), e.add(number, 1)) if shape.causal else e.const(shape.keys)
    stop = e.mul(e.udiv(e.add(seen, lanes - 1), lanes), lanes)
    nothing = e.const(-math.inf, kernel.vector)
    with e.loop(0, stop, lanes, carried=[nothing]) as t:
        score = _score(e, kernel, head, number, t.index, seen, weights)
        e.store(score, e.gep(weights, t.index, "float"), 4)
        t.carry([e.select(e.compare("ogt", score, t.values[0]), score, t.values[0])])
    most = greatest_lane(e, t.values[0])
    most = e.select(e.compare("oeq", most, e.const(-math.inf, "float")), e.const(0.0, "float"), most)
    highest = e.splat(most, lanes)
    zero = e.zero(kernel.vector)
    with e.loop(0, stop, lanes, carried=[zero, zero]) as t:
        place = e.gep(weights, t.index, "float")
        weight = exp_of_difference(e, e.load(place, kernel.vector, 4), highest, kernel.target)
        e.store(weight, place, 4)
        slope = _known(e, kernel, e.load(e.gep(slopes, t.index, "float"), kernel.vector, 4), t.index, seen)
        t.carry([e.binary("fadd", t.values[0], weight), multiply_add(e, weight, slope, t.values[1])])
    total, product = (e.reduce("fadd", value) for value in t.values)
    some = e.compare("ogt", total, e.const(0.0, "float"))
    inverse = e.select(some, e.binary("fdiv", e.const(1.0, "float"), total), e.const(0.0, "float"))
    mean = e.splat(e.binary("fmul", product, inverse), lanes)
    share = e.splat(inverse, lanes)
    with e.loop(0, stop, lanes) as t:
        at, of = e.gep(weights, t.index, "float"), e.gep(slopes, t.index, "float")
        weight = e.binary("fmul", e.load(at, kernel.vector, 4), share)
        e.store(weight, at, 4)
        slope = _known(e, kernel, e.load(of, kernel.vector, 4), t.index, seen)
        scaled = e.binary("fmul", weight, e.const(shape.scale, kernel.vector))
        e.store(e.binary("fmul", scaled, e.binary("fsub", slope, mean)), of, 4)
    _forget(e, kernel, stop, [weights, slopes])


def _score(e: Emitter, kernel: _Kernel, head: _Head, number: Value, key: Value, seen: Value, weights: Value) -> Value:
    """A vector of finished scores; -inf for keys that are not seen."""
    shape = kernel.shape
    score = e.binary("fmul", e.load(e.gep(weights, key, "float"), kernel.vector, 4), e.const(shape.scale, kernel.vector))
    sees = _seen(e, kernel, key, seen)
    if shape.mask is not None and kernel.tensors.mask is not None:
        image, of_head, of_row = shape.mask
        at = e.add(e.add(e.mul(head.image, image), e.mul(head.head, of_head)), e.add(e.mul(number, of_row), key))
        mask = e.masked_load(e.gep(kernel.tensors.mask, at, "float"), kernel.vector, 4, sees, e.zero(kernel.vector))
        score = e.binary("fadd", score, mask)
    return e.select(sees, score, e.const(-math.inf, kernel.vector))


def _seen(e: Emitter, kernel: _Kernel, key: Value, seen: Value) -> Value:
    """Which of the keys from `key` on are seen."""
    if seen.text.isdigit() and kernel.shape.keys % kernel.lanes == 0:
        every = first_lanes(kernel.lanes, kernel.lanes)
        assert every is None
        return Value("splat (i1 true)", vector_type("i1", kernel.lanes))
    numbers = e.add(e.splat(key, kernel.lanes), e.lane_numbers(kernel.lanes))
    return e.compare("slt", numbers, e.splat(seen, kernel.lanes))


def _known(e: Emitter, kernel: _Kernel, vector: Value, key: Value, seen: Value) -> Value:
    """Zero where there is no key, for there a product may hold anything."""
    return e.select(_seen(e, kernel, key, seen), vector, e.zero(vector.type))


def _forget(e: Emitter, kernel: _Kernel, start: Value, rows: Sequence[Value]) -> None:
    """Zero behind the keys that a row sees: the block's products read as many of every row as its last row sees."""
    if not kernel.shape.causal:
        return
    with e.loop(start, kernel.padded, kernel.lanes) as t:
        for row in rows:
            e.store(e.zero(kernel.vector), e.gep(row, t.index, "float"), 4)
