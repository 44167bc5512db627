"""Scores to weights: what is done to scores, the exponentials of one block of keys, and what the blocks before are worth now."""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import fills_registers
from anycann.codegen.kernels.attention_kernel import Kernel, Rows
from anycann.codegen.kernels.attention_shape import AttentionShape
from anycann.codegen.kernels.matmul_shape import multiply_add
from anycann.codegen.values import Value, vector_type
from anycann.codegen.vector_math_basic import polynomial
from anycann.codegen.vector_math_exponential import tanh
from anycann.target.target import Target


def changed_scores(e: Emitter, shape: AttentionShape, product: Value, masks: Sequence[Value]) -> Value:
    """A vector of scores, from products: scaled (unless that is left to the exponential), capped, with their masks applied in order."""
    if shape.is_plain:
        return product
    score, factor = product, e.const(shape.scale, product.type)
    if shape.softcap:
        inside = e.binary("fmul", score, e.const(shape.scale / shape.softcap, score.type))
        score, factor = tanh(e, inside), e.const(shape.softcap, score.type)
    changes = list(zip(shape.scores, masks, strict=True))
    added = bool(changes) and not changes[0][0].replaces
    score = multiply_add(e, score, factor, changes.pop(0)[1]) if added else e.binary("fmul", score, factor)
    for change, mask in changes:
        stays = e.compare("oeq", mask, e.zero(mask.type)) if change.replaces else None
        score = e.binary("fadd", score, mask) if stays is None else e.select(stays, score, mask)
    return score


def greater(e: Emitter, a: Value, b: Value) -> Value:
    """The greater, lane by lane; b if one is not a number."""
    return e.select(e.compare("ogt", a, b), a, b)


def greatest_lane(e: Emitter, vector: Value) -> Value:
    """The greatest lane of a vector of numbers, by halves: LLVM compares the lanes of `reduce("fmax")` one after the other."""
    while vector.lanes > 1:
        half = vector.lanes // 2
        low, high = (e.shuffle(vector, vector, range(first, first + half)) for first in (0, half))
        vector = greater(e, low, high) if half > 1 else greater(e, *(e.extract(vector, lane) for lane in range(2)))
    return vector


def finished_results(e: Emitter, shape: AttentionShape, sums: Sequence[Value], total: Value) -> list[Value]:
    """Sums of weighted values of one row divided by the scalar sum of its weights."""
    lanes = sums[0].lanes
    scale = e.splat(e.binary("fdiv", e.const(1.0, "float"), total), lanes)
    some = e.splat(e.compare("ogt", total, e.const(0.0, "float")), lanes)
    results = [e.binary("fmul", value, scale) for value in sums]
    return [e.select(some, result, e.zero(result.type)) for result in results] if shape.empty_is_zero else results


def emit_weights(e: Emitter, kernel: Kernel, rows: Rows, count: Value) -> None:
    """weights = exp(weights - most) for `count` keys, total = total * factor + their sum, factor = exp(before - most), before = most.

    Rows that have seen nothing but -inf have weights of zero. Where there is one block of keys, total = 1 / their sum is all that is kept.
    """
    memory, type_, shape, target = kernel.memory, kernel.vector, kernel.shape, kernel.target
    lanes, vectors = memory.lanes, rows.vectors
    places = {name: [e.gep(memory.at(e, name, rows.number), j * lanes, "float") for j in range(vectors)] for name in memory.row_arrays}
    highest, totals = [], []
    for j in range(vectors):
        most = e.load(places["most"][j], type_, 4)
        nothing = e.compare("oeq", most, e.const(-math.inf, type_))
        highest.append(e.select(nothing, e.zero(type_), most))
        if kernel.is_direct:
            totals.append(e.zero(type_))
            continue
        factor = exp_of_difference(e, e.load(places["before"][j], type_, 4), highest[j], target, shape.exponent_scale)
        e.store(factor, places["factor"][j], 4)
        e.store(most, places["before"][j], 4)
        totals.append(e.binary("fmul", e.load(places["total"][j], type_, 4), factor))
    for j, total in enumerate(_weighed(e, kernel, highest, totals, count)):
        e.store(e.binary("fdiv", e.const(1.0, type_), total) if kernel.is_direct else total, places["total"][j], 4)


# Exponentials that wait for each other's turn: with 16 registers LLVM writes two one behind the other, and the processor sees no further.
# Four take 0.97 of the time of attention with 197 keys of 64 (Zen 3).
_AT_ONCE = 4


def _weighed(e: Emitter, kernel: Kernel, highest: list[Value], totals: list[Value], count: Value) -> list[Value]:
    """weights = exp(weights - highest) for `count` keys, register by register of rows; returns totals + their sums."""
    memory, type_ = kernel.memory, kernel.vector
    weights, vectors = memory.at(e, "weights"), len(highest)
    keys = -(-_AT_ONCE // vectors) if fills_registers(kernel.target) else 1

    def added(first: Value, size: int, sums: Sequence[Value]) -> list[Value]:
        line = e.gep(weights, e.mul(first, memory.rows), "float")
        places = [e.gep(line, i * memory.rows + j * memory.lanes, "float") for i in range(size) for j in range(vectors)]
        scores = [e.load(place, type_, 4) for place in places]
        powers = exps_of_differences(e, scores, highest * size, kernel.target, kernel.shape.exponent_scale)
        for power, place in zip(powers, places, strict=True):
            e.store(power, place, 4)
        for i in range(0, len(powers), vectors):
            sums = [e.binary("fadd", total, power) for total, power in zip(sums, powers[i : i + vectors], strict=True)]
        return list(sums)

    whole = e.sub(count, e.urem(count, keys)) if keys > 1 else count
    with e.loop(0, whole, keys, carried=totals) as turn:
        turn.carry(added(turn.index, keys, turn.values))
    if keys == 1:
        return turn.values
    with e.loop(whole, count, carried=turn.values) as key:
        key.carry(added(key.index, 1, key.values))
    return key.values


# (2^r - 1) / r for |r| <= 1/2: a weighted least-squares fit on Chebyshev nodes, lowest coefficient first
_TAIL = (0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.001326472614891827)
# 2^r for 0 <= r < 1, one at zero: the same fit
_POWERS = (1.0, 0.6931513118, 0.2401644499, 0.05579991411, 0.009017028957, 0.001867130703)
_LOG2_E = 1.4426950408889634
_BIAS = 127.0  # of exponents
_ROUND = 1.5 * 2.0**23 + _BIAS  # what is added to it loses its fraction, and its lowest bits are the exponent of a power of two
_SMALLEST = -125.0  # the least power of two


def exp_of_difference(e: Emitter, a: Value, b: Value, target: Target, scale: float = 1.0) -> Value:
    """e^(scale (a - b)) for a <= b; zero below 1.6e-38. Not a number if an operand or the difference is none. Error: 2 ulp near zero."""
    return exps_of_differences(e, [a], [b], target, scale)[0]


def exps_of_differences(e: Emitter, a: Sequence[Value], b: Sequence[Value], target: Target, scale: float) -> list[Value]:
    """`exp_of_difference` of several vectors, step by step side by side."""
    differences = [e.binary("fsub", one, other) for one, other in zip(a, b, strict=True)]
    type_, bits = a[0].type, vector_type("i32", a[0].lanes)
    factor, shift = e.const(scale * _LOG2_E, type_), e.const(_ROUND, type_)
    if target.has("avx512dq") and a[0].lanes == 16:
        return [_scaled_power(e, e.binary("fmul", x, factor)) for x in differences]
    shifted = [multiply_add(e, x, factor, shift) for x in differences]
    whole = [e.binary("fsub", x, shift) for x in shifted]
    rest = [multiply_add(e, x, factor, e.binary("fsub", e.const(-0.0, type_), n)) for x, n in zip(differences, whole, strict=True)]
    powers = [e.const(_TAIL[-1], type_)] * len(rest)
    for coefficient in (*_TAIL[-2::-1], 1.0):
        powers = [multiply_add(e, power, r, e.const(coefficient, type_)) for power, r in zip(powers, rest, strict=True)]
    exponents = [e.binary("shl", e.cast("bitcast", x, "i32"), e.const(23, bits)) for x in shifted]
    results = [e.binary("fmul", power, e.cast("bitcast", n, "float")) for power, n in zip(powers, exponents, strict=True)]
    least, zero = e.const(_ROUND + _SMALLEST, type_), e.zero(type_)
    return [e.select(e.compare("olt", x, least), zero, result) for x, result in zip(shifted, results, strict=True)]


_LEAST = -87.0 * _LOG2_E


def _scaled_power(e: Emitter, x: Value) -> Value:
    """2^x by the instructions that take the fraction of a number, and that multiply by a power of two.

    Lanes whose result were denormal are left out, as zero: they take a hundred times as long.
    """
    all_lanes, current, down = Value("-1", "i16"), e.const(4, "i32"), e.const(1, "i32")
    there = e.compare("uge", x, e.const(_LEAST, x.type))
    lanes = e.bitcast(there, "i16")
    fraction = e.call("llvm.x86.avx512.mask.reduce.ps.512", x.type, [x, down, x, all_lanes, current])
    power = polynomial(e, fraction, _POWERS)
    return e.call("llvm.x86.avx512.mask.scalef.ps.512", x.type, [power, x, e.zero(x.type), lanes, current])
