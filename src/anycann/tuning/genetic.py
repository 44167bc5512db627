"""Genetic search (GA): the best points so far are crossed and mutated; the cost model picks the children worth measuring."""

from __future__ import annotations

import random

from anycann.tuning.cost_model import CostModel
from anycann.tuning.study import Key, Study

POPULATION = 12
CHILDREN = 160
MUTATION = 0.35  # chance of each gene
FRESH = 0.15  # share of children that come from nowhere


class GeneticSearch:
    """The fitness of a point is its measured ratio; of a child, what the cost model predicts."""

    def propose(self, study: Study, model: CostModel, count: int, rng: random.Random) -> list[Key]:
        parents = sorted(study.measured(), key=lambda item: item[1])[:POPULATION]
        children: dict[Key, float] = {}
        for _ in range(CHILDREN):
            child = _random(study, rng) if rng.random() < FRESH else _child(study, [key for key, _ in parents], rng)
            if child not in study.ratios and child not in children and study.estimate(child) is not None:
                children[child] = model.predict(study, child)
        return sorted(children, key=lambda key: children[key])[:count]


def _random(study: Study, rng: random.Random) -> Key:
    return tuple(rng.choice(parameter.choices) for parameter in study.parameters)


def _child(study: Study, parents: list[Key], rng: random.Random) -> Key:
    """Each gene from one of two parents, better ones more often; some move to a neighbouring choice, or anywhere."""
    mother, father = (parents[min(rng.randrange(len(parents)), rng.randrange(len(parents)))] for _ in range(2))
    genes = [rng.choice(pair) for pair in zip(mother, father, strict=True)]
    for place, parameter in enumerate(study.parameters):
        if rng.random() >= MUTATION:
            continue
        choices = parameter.choices
        if genes[place] in choices and rng.random() < 0.6:
            at = choices.index(genes[place]) + rng.choice((-2, -1, 1, 2))
            genes[place] = choices[min(len(choices) - 1, max(0, at))]
        else:
            genes[place] = rng.choice(choices)
    return tuple(genes)
