"""How a product by dot products is planned: its tile, and which of its bytes are multiplied as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anycann.codegen.kernels.dot_direct import gains_directly
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_sorted import around_of, gains_by_sorting
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.space import Choices


def sorting(space: DotSpace, middle: int | None, centred: bool = True, window: int = 0) -> DotSpace:
    """The same, with groups of the input sorted by their size if that gains.

    middle: what most of the input lies around, counted from the least byte; None: they are not sorted.
    """
    whole = DotTile(1, 1, 1, max(1, space.problem.out_size[-2]), 1)
    gains = middle is not None and gains_by_sorting(replace(space.plan(whole), centred=centred, window=window))
    return replace(space, around=around_of(middle)) if gains else space


def plan_dots(space: DotSpace, choices: Choices, weights: np.ndarray[Any, Any], centred: bool = True, window: int = 0) -> DotPlan:
    """The plan for weights [O, C / groups, (kd,) kh, kw] and the chosen tile of a space."""
    plan = replace(space.plan(choices.tile(space)), centred=centred, window=window)
    return plan if plan.sorts else replace(plan, direct=gains_directly(plan, weights))
