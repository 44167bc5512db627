"""How a product by dot products is planned: its tile, and which of its bytes are multiplied as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anycann.codegen.kernels.dot_direct import gains_directly, group_time
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_sorted import around_of, gains_by_sorting
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.space import Choices

_VECTORS = 2  # of most tiles by magnitudes
# What a sorted group takes: with each vector of weights and, shared by these, to sort it; near 0 nearly all are in pairs, elsewhere weights
# take registers of their own. Sorting takes more where an entry of a list is two numbers. Last, around a tile, shared by its groups.
# 784 x 256 x 256 take 0.78 of the time by magnitudes near 0 and 0.91 to 0.94 elsewhere, 784 x 128 x 64 0.86 and 0.98 to 1.01. Where 0.98 of
# the weights are in pairs as they are, sorting the input of 508 x 1280 x 512 took 1.2 to 1.5 of the time (Zen 3).
_NEAR, _AWAY = (1.0, 1.05), (1.19, 1.1)
_PLACES, _TILE = 1.5, 1.0


def sorting(space: DotSpace, middle: int | None, weights: np.ndarray[Any, Any], window: int = 0) -> DotSpace:
    """The same, with groups of the input sorted by their size if that gains with weights [O, C / groups, (kd,) kh, kw].

    middle: what most of the input lies around, counted from the least byte; None: they are not sorted.
    """
    if middle is None:
        return space
    around, whole = around_of(middle), DotTile(1, _VECTORS, 1, max(1, space.problem.out_size[-2]), 1)
    plan = replace(space.plan(whole), window=window)
    gains = gains_by_sorting(plan) and _sorted_time(plan, around) < group_time(plan, weights)
    return replace(space, around=around) if gains else space


def _sorted_time(plan: DotPlan, around: int | None) -> float:
    """What a group takes with a vector of weights where inputs are as they mostly are, in the unit of `group_time`."""
    time, sort = _AWAY if around else _NEAR
    lanes, groups = plan.target.lanes, plan.runs[-1]
    filled = groups / (-(-groups // lanes) * lanes)
    sort *= (1.0 if plan.is_one_run else _PLACES) / filled
    return time + sort / -(-plan.shape.out_channels // lanes) + _TILE / plan.depth


def plan_dots(space: DotSpace, choices: Choices, weights: np.ndarray[Any, Any], centred: bool = True, window: int = 0) -> DotPlan:
    """The plan for weights [O, C / groups, (kd,) kh, kw] and the chosen tile of a space."""
    plan = replace(space.plan(choices.tile(space)), centred=centred, window=window)
    return plan if plan.sorts else replace(plan, direct=gains_directly(plan, weights))
