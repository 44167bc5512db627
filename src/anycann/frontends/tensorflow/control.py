"""Conditions of TensorFlow 1: Switch hands a value to one of two sides, Merge takes the one that came.

Both sides are computed, which has no effect but time; Merge chooses. A condition that is known leaves one side only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anycann.frontends.tensorflow.builder import known_array
from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.layout import Branch, Tensor


@operator("Switch RefSwitch")
def _switch(call: Call) -> Result:
    """Results: what goes where the condition is false, and where it is true."""
    data, condition = call.tensor(0), call.value(1)
    known = known_array(condition)
    if known is not None:
        return [replace(data, dead=bool(known) is not side, padded=None) for side in (False, True)]
    sides: list[Branch] = [(condition, False), (condition, True)]
    return [replace(data, branches=data.branches | {side}, padded=None) for side in sides]


@operator("Merge RefMerge")
def _merge(call: Call) -> Result:
    """Results: the value, and which of the operands it was."""
    alive = [(number, tensor) for number, tensor in enumerate(call.tensors) if not tensor.dead]
    if len(alive) == 1:
        number, tensor = alive[0]
        return [tensor, Tensor(last=call.constant(number, np.int32))]
    if len(alive) != 2:
        raise call.fail(f"{len(alive)} operands may come; accepted: 2, the sides of one condition")
    (first, one), (second, other) = alive
    condition, is_first = _decided(call, one, other)
    operands = [call.value(first), call.value(second)]
    chosen = call.builder.select(condition, *(operands if is_first else operands[::-1]))
    branches = (one.branches | other.branches) - {(condition, False), (condition, True)}
    numbers = (first, second) if is_first else (second, first)
    place = call.op("Where", condition, *(call.constant(number, np.int32) for number in numbers))
    return [Tensor(last=chosen, branches=branches), Tensor(last=place, branches=branches)]


def _decided(call: Call, one: Tensor, other: Tensor) -> Branch:
    """The condition that `one` and `other` are the two sides of, and whether `one` is the side of true."""
    for condition, side in one.branches:
        if (condition, not side) in other.branches:
            return condition, side
    raise call.fail("its operands are not the two sides of one condition")
