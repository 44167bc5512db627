"""What a point will cost, learned from those that were measured: ridge regression on how it differs from the default of its task.

The logarithm of time / default time is a sum of features: the generator's own estimate, the logarithm of each parameter relative to the
default's, their squares and products. Without measurements the generator's estimate alone speaks.
"""

from __future__ import annotations

from collections.abc import Iterable
import math

import numpy as np
import numpy.typing as npt

from anycann.tuning.study import Key, Study

Vector = npt.NDArray[np.float64]
PRIOR_WEIGHT = 0.6  # of the generator's estimate, before anything is measured
RIDGE = 3.0
LIMIT = 2.0  # predictions beyond e^2 times faster or slower mean nothing


class CostModel:
    """One for each family of kernels; learns from all tasks of the family together."""

    def __init__(self) -> None:
        self._weights: Vector | None = None

    def fit(self, studies: Iterable[Study]) -> None:
        """Learn from everything measured so far."""
        rows, targets = [], []
        for study in studies:
            for key, ratio in study.measured():
                if key != study.default:
                    rows.append(features(study, key))
                    targets.append(min(LIMIT, max(-LIMIT, math.log(ratio))))
        if not rows:
            return
        x, y = np.array(rows), np.array(targets)
        prior = np.zeros(x.shape[1])
        prior[0] = PRIOR_WEIGHT
        scale = np.maximum(x.std(0), 0.1)
        normal = (x / scale).T @ (x / scale) + RIDGE * np.eye(x.shape[1])
        self._weights = prior + np.linalg.solve(normal, (x / scale).T @ (y - x @ prior)) / scale

    def predict(self, study: Study, key: Key) -> float:
        """The logarithm of time / default time."""
        row = features(study, key)
        value = float(row @ self._weights) if self._weights is not None else PRIOR_WEIGHT * float(row[0])
        return min(LIMIT, max(-LIMIT, value))


def features(study: Study, key: Key) -> Vector:
    """How a point differs from the default, as numbers near 1."""
    own, unasked = study.estimate(key), study.estimate(study.default)
    estimate = math.log(own / unasked) if own and unasked else 0.0
    steps = [math.log2((2 + value) / (2 + usual)) for value, usual in zip(key, study.default, strict=True)]
    products = [steps[i] * steps[j] / 2 for i in range(len(steps)) for j in range(i, len(steps))]
    return np.array([estimate, estimate * abs(estimate), *steps, *products])
