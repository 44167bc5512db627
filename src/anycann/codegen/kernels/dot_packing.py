"""Weights in the order that convolutions by dot products read them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.codegen.kernels.dot_direct import group_offsets, order_groups
from anycann.codegen.kernels.dot_magnitudes import lift, split_weights
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import ORDER_COUNTS, DotPlan
from anycann.codegen.kernels.dot_sorted import LIFT
from anycann.te import dtypes


def pack_dots(
    plan: DotPlan, weights: npt.NDArray[np.generic], zero_point: int | None, weight_zero: npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.int8]:
    """Weights [O, C / groups, (kd,) kh, kw] of int8 or bfloat16 -> bytes of [panels, head + k groups, columns, group].

    The head of a panel of integers is an int32 a column: what the zero point of the input adds to its sums, or, where that is not known
    (None), what it adds times the zero point. `zero_point` counts from the least byte: that of an int8 input lies 128 higher.
    By magnitudes it has their `lift` too, and groups are what `split_weights` makes of them, twice as many bytes, unless the plan
    `is_narrow`. With `plan.direct` a table follows the head, and groups lie in the order of `order_groups`; the bytes that some save are
    left over behind them. With `plan.around` bytes are 128 higher, unsigned. Weights that are not `centred` have a zero point, one or one
    an output channel; its negative follows, for the sum of the input.
    """
    outputs, channels, *kernel = weights.shape
    dtype = np.int16 if plan.dots.widens else weights.dtype
    padded = np.zeros((plan.all_panels * plan.width, *kernel, plan.multiplied), dtype)
    turned = np.moveaxis(weights, 1, -1)
    for number, first in _pieces(plan):
        padded[number, ..., first : first + channels] = turned[number]
    *parts, groups_of_part = plan.runs
    runs = padded.reshape(len(padded), prod(parts), -1)
    runs = np.pad(runs, [(0, 0), (0, 0), (0, groups_of_part * plan.group - runs.shape[2])])
    runs = _with_repeated(plan, runs)
    chunks = runs.reshape(len(padded), prod(parts), -1, plan.steps * plan.group).swapaxes(1, 2) if plan.by_chunks else runs
    groups = chunks.reshape(plan.all_panels, plan.width, plan.depth, plan.group).swapaxes(1, 2)
    lacking = None
    if plan.direct:
        body, lacking = _in_order(plan, groups)
    else:
        groups = split_weights(groups) if plan.dots.weight_bytes > GROUP_BYTES else groups
        groups = groups ^ np.int8(-LIFT) if plan.around else groups
        body = np.ascontiguousarray(groups).view(np.int8).reshape(plan.all_panels, -1, plan.width * GROUP_BYTES)
    if not plan.head:
        return body
    zero = np.zeros(len(padded), np.int32)
    if weight_zero is not None:
        zero[:outputs] = weight_zero.reshape(-1)
    count = channels * prod(kernel)
    sums = (zero * count - padded.astype(np.int32).reshape(len(padded), -1).sum(1, dtype=np.int32)).astype(np.int32)
    first = sums if zero_point is None else sums * np.int32(zero_point - (plan.around or 0))
    if plan.magnitudes and not plan.sorts:
        first = first + (lift(padded.reshape(len(padded), -1), 1) if lacking is None else lacking)
    heads = [first] if plan.centred else [first, -zero]
    lines = [head.reshape(plan.all_panels, 1, plan.width) for head in heads]
    return np.concatenate([*(np.ascontiguousarray(line).view(np.int8) for line in lines), body], axis=1)


def _with_repeated(plan: DotPlan, runs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[..., elements of a part] with what the last step takes again: zeros there, but half the weights, twice, where they are floats.

    Halves are exact, and infinity times a half is what it is times the whole.
    """
    groups, repeated = plan.runs[-1], (plan.part_groups - plan.runs[-1]) * plan.group
    if not repeated:
        return runs
    first = (groups - plan.steps) * plan.group
    whole, again = runs.copy(), runs[..., first:].copy()
    if plan.shape.dtype is dtypes.bfloat16:
        again[..., :repeated] *= again.dtype.type(0.5)
        whole[..., first : first + repeated] = again[..., :repeated]
    else:
        again[..., :repeated] = 0
    return np.concatenate([whole[..., : first + repeated], again], axis=-1)


def _in_order(plan: DotPlan, groups: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """[panels, depth, columns, 4] -> the rows of each panel behind its head, and the `lift` of each column, of the last groups alone."""
    order = order_groups(groups)
    table = np.zeros((plan.all_panels, plan.order_bytes // GROUP_BYTES), np.int32)
    table[:, 0], table[:, 1], table[:, 2] = order.paired, order.direct, order.needed
    table[:, ORDER_COUNTS : ORDER_COUNTS + plan.depth] = group_offsets(plan)[order.taken]
    body = np.zeros((plan.all_panels, plan.panel_bytes - plan.head * plan.width * GROUP_BYTES), np.int8)
    body[:, : plan.order_bytes] = table.view(np.int8)
    lacking = np.zeros((plan.all_panels, plan.width), np.int32)
    for panel, (taken, count, needed) in enumerate(zip(order.taken, order.direct, order.needed, strict=True)):
        direct, rest = groups[panel, taken[:count]], groups[panel, taken[count:needed]]
        last = rest if plan.is_narrow else split_weights(rest).view(np.int8)
        content = np.concatenate([direct.reshape(-1), last.reshape(-1)])
        body[panel, plan.order_bytes : plan.order_bytes + content.size] = content
        lacking[panel] = lift(rest, (0, 2))
    return body.reshape(plan.all_panels, -1, plan.width * GROUP_BYTES), lacking.reshape(-1)


def _pieces(plan: DotPlan) -> Iterator[tuple[slice, int]]:
    """Output channels of one panel and one group, and the place of their first input channel among those that the panel multiplies."""
    shape = plan.shape
    bounds = {0, shape.out_channels, *range(0, shape.out_channels, plan.width), *range(0, shape.out_channels, shape.group_outputs)}
    for first, stop in pairwise(sorted(bounds)):
        channel = first // shape.group_outputs * shape.group_inputs
        yield slice(first, stop), channel - plan.first_channel(first // plan.width)
