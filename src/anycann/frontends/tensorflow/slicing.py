"""Slices: by begin and size, and by begin, end and step with TensorFlow's masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import known_array, sizes_of
from anycann.frontends.tensorflow.definition import HUGE, Call, Result, operator
from anycann.support.records import dataclass


@operator("Slice")
def _slice(call: Call) -> Result:
    """A size of -1 is all that is left."""
    begin, size = call.integers(1), call.integers(2)
    length = (sizes_of(begin) or (None,))[0]
    axes = call.constant(list(range(call.rank(0) if length is None else length)), np.int64)
    to_the_end = call.op("Less", size, call.constant(0, np.int64))
    ends = call.op("Where", to_the_end, call.constant(HUGE, np.int64), call.op("Add", begin, size))
    return call.op("Slice", call.value(0), begin, ends, axes)


@dataclass
class _Plan:
    """What the masks of a StridedSlice come to: the entries that are slices, single places and new axes."""

    slices: list[tuple[int, int]] = field(default_factory=list)  # (entry, axis of the operand)
    places: list[tuple[int, int]] = field(default_factory=list)
    new_axes: list[int] = field(default_factory=list)  # of the result


@operator("StridedSlice")
def _strided_slice(call: Call) -> Result:
    begin, end, steps = call.integers(1), call.integers(2), call.known(3, "strides")
    plan = _plan(call, len(steps))
    value = _sliced(call, call.value(0), plan, begin, end, [int(step) for step in steps])
    for entry, axis in reversed(plan.places):
        value = call.op("Gather", value, call.reshaped(_entries(call, begin, [entry]), []), axis=axis)
    return call.op("Unsqueeze", value, call.constant(plan.new_axes, np.int64)) if plan.new_axes else value


def _plan(call: Call, count: int) -> _Plan:
    """Which entry is for which axis."""
    masks = {name: int(call.attribute(f"{name}_mask", 0)) for name in ("ellipsis", "new_axis", "shrink_axis")}
    plan, axis, result = _Plan(), 0, 0
    for entry in range(count):
        bit = 1 << entry
        if masks["ellipsis"] & bit:
            later = range(entry + 1, count)
            taken = axis + sum(not masks["new_axis"] >> n & 1 for n in later)
            skipped = call.rank(0) - taken
            axis, result = axis + skipped, result + skipped
        elif masks["new_axis"] & bit:
            plan.new_axes.append(result)
            result += 1
        elif masks["shrink_axis"] & bit:
            plan.places.append((entry, axis))
            axis += 1
        else:
            plan.slices.append((entry, axis))
            axis, result = axis + 1, result + 1
    return plan


def _sliced(call: Call, value: ir.Value, plan: _Plan, begin: ir.Value, end: ir.Value, steps: Sequence[int]) -> ir.Value:
    """The slices of a plan, but for those that take the whole axis."""
    masks = {name: int(call.attribute(f"{name}_mask", 0)) for name in ("begin", "end")}
    cut = [(entry, axis) for entry, axis in plan.slices if not _is_whole(begin, end, entry, steps[entry], masks)]
    if not cut:
        return value
    entries = [entry for entry, _ in cut]
    starts = _masked(call, begin, entries, masks["begin"], [0 if steps[entry] > 0 else HUGE for entry in entries])
    ends = _masked(call, end, entries, masks["end"], [HUGE if steps[entry] > 0 else -HUGE for entry in entries])
    numbers = ([axis for _, axis in cut], [steps[entry] for entry in entries])
    return call.op("Slice", value, starts, ends, *(call.constant(list(row), np.int64) for row in numbers))


def _is_whole(begin: ir.Value, end: ir.Value, entry: int, step: int, masks: dict[str, int]) -> bool:
    known = known_array(begin)
    from_start = masks["begin"] >> entry & 1 or (known is not None and known[entry] == 0)
    return bool(from_start and masks["end"] >> entry & 1 and step == 1)


def _masked(call: Call, row: ir.Value, entries: list[int], mask: int, instead: list[int]) -> ir.Value:
    """Those entries of a row, others in place of those that the mask names."""
    given = _entries(call, row, entries)
    masked = [bool(mask >> entry & 1) for entry in entries]
    if not any(masked):
        return given
    return call.op("Where", call.constant(masked, bool), call.constant(instead, np.int64), given)


def _entries(call: Call, row: ir.Value, entries: list[int]) -> ir.Value:
    return call.op("Gather", row, call.constant(entries, np.int64), axis=0)


@operator("ReverseV2 Reverse")
def _reverse(call: Call) -> Result:
    """Reverse has a flag for every axis, ReverseV2 the axes."""
    given = call.known(1, "axis").reshape(-1)
    axes = list(np.flatnonzero(given)) if call.node.op == "Reverse" else [int(axis) for axis in given]
    rows = ([-1] * len(axes), [-HUGE] * len(axes), axes, [-1] * len(axes))
    return call.op("Slice", call.value(0), *(call.constant(row, np.int64) for row in rows))


@operator("ReverseSequence")
def _reverse_sequence(call: Call) -> Result:
    axes = {"batch_axis": int(call.attribute("batch_dim", 0)), "time_axis": int(call.attribute("seq_dim", 1))}
    return call.op("ReverseSequence", call.value(0), call.integers(1), **axes)
