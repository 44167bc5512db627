"""The searches: each proposes the points to measure next. They keep nothing between proposals, so that a journal of results is all
that going on after an interruption needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import random
from typing import Protocol

from anycann.support.errors import UsageError
from anycann.tuning.cost_model import CostModel
from anycann.tuning.genetic import GeneticSearch
from anycann.tuning.study import Key, Study
from anycann.tuning.tree_search import TreeSearch


class Search(Protocol):
    """A way to choose what is measured next."""

    def propose(self, study: Study, model: CostModel, count: int, rng: random.Random) -> list[Key]:
        """Up to `count` points of the space that were not measured, the most promising first."""


SEARCHES: dict[str, Callable[[], Search]] = {"RL": TreeSearch, "GA": GeneticSearch}


def searches(auto_tune_mode: str) -> list[Search]:
    """The searches that Ascend's option names: "RL", "GA" or both with a comma between. Raises UsageError for another name."""
    names = [word.strip() for word in auto_tune_mode.split(",") if word.strip()]
    unknown = [name for name in names if name not in SEARCHES]
    if unknown or not names:
        raise UsageError(f"auto_tune_mode {auto_tune_mode!r}; accepted: RL, GA, or RL,GA")
    return [SEARCHES[name]() for name in dict.fromkeys(names)]


def propose(study: Study, model: CostModel, among: Iterable[Search], count: int, rng: random.Random) -> list[Key]:
    """`count` new points, each search having its share."""
    chosen = list(among)
    found: dict[Key, None] = {}
    for number, search in enumerate(chosen):
        share = -(-(count - len(found)) // (len(chosen) - number))
        fresh = [key for key in search.propose(study, model, count, rng) if key not in found]
        found |= dict.fromkeys(fresh[:share])
    return list(found)
