"""Reinforcement search (RL): Monte Carlo tree search over the decisions of a schedule, in the order of the parameters.

A node is the decisions taken so far. A playout follows the upper confidence bound through the known part of the tree and decides at random
below it; its reward is the speed relative to the default: measured where it was, else as the learned cost model predicts.
"""

from __future__ import annotations

from dataclasses import field
import math
import random

from anycann.support.records import dataclass
from anycann.tuning.cost_model import CostModel
from anycann.tuning.study import Key, Study

PLAYOUTS = 250
EXPLORATION = 0.25


@dataclass
class _Node:
    """Decisions taken so far, and what playouts through here were worth."""

    visits: int = 0
    total: float = 0.0
    best: float = 0.0
    children: dict[int, _Node] = field(default_factory=dict)

    def bound(self, parent_visits: int) -> float:
        """Upper confidence bound of the reward: between mean and best, and higher the less it was tried."""
        worth = (self.total / self.visits + self.best) / 2
        return worth + EXPLORATION * math.sqrt(math.log(parent_visits + 1) / self.visits)

    def promising(self) -> int:
        """The child with the highest bound."""
        return max(self.children, key=lambda choice: self.children[choice].bound(self.visits))


class TreeSearch:
    """The tree is grown anew for each proposal from all that was measured."""

    def propose(self, study: Study, model: CostModel, count: int, rng: random.Random) -> list[Key]:
        root, found = _Node(), dict[Key, float]()
        for key, ratio in study.ratios.items():
            _reward(root, key, 1 / ratio)
        for _ in range(PLAYOUTS):
            key = _playout(root, study, rng)
            known = study.ratios.get(key)
            if known is not None:
                _reward(root, key, 1 / known)
            elif study.estimate(key) is None:
                _reward(root, key, 0.0)
            else:
                found[key] = math.exp(-model.predict(study, key))
                _reward(root, key, found[key])
        return sorted(found, key=lambda key: -found[key])[:count]


def _playout(root: _Node, study: Study, rng: random.Random) -> Key:
    node: _Node | None = root
    decisions = []
    for parameter in study.parameters:
        if node is None:
            decisions.append(rng.choice(parameter.choices))
            continue
        untried = [choice for choice in parameter.choices if choice not in node.children]
        explores = rng.random() < len(untried) / len(parameter.choices)
        choice = rng.choice(untried) if explores else node.promising()
        decisions.append(choice)
        node = node.children.get(choice)
    return tuple(decisions)


def _reward(root: _Node, key: Key, reward: float) -> None:
    """Let every node on the way to a leaf know what it was worth."""
    node = root
    for decision in (None, *key):
        if decision is not None:
            node = node.children.setdefault(decision, _Node())
        node.visits += 1
        node.total += reward
        node.best = max(node.best, reward)
