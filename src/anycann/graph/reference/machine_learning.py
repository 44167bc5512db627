"""Operators of ai.onnx.ml that onnx.reference has no meaning of, or another one than libsvm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.aionnxml import (
    op_linear_classifier,
    op_linear_regressor,
    op_normalizer,
    op_scaler,
    op_svm_classifier,
    op_svm_regressor,
    op_tree_ensemble_classifier,
    op_tree_ensemble_regressor,
)
from onnx.reference.ops.aionnxml._common_classifier import compute_logistic


class ZipMap(OpRun):
    """A dictionary for each row of x: the label of each column, and what stands there."""

    op_domain = "ai.onnx.ml"

    def _run(
        self, x: np.ndarray, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
    ) -> tuple[list[dict[int | str, float]]]:
        labels: list[int | str] = [*(classlabels_int64s or classlabels_strings or ())]
        return ([dict(zip(labels, row, strict=True)) for row in x.reshape(-1, len(labels)).tolist()],)


class _SVMClassifier(op_svm_classifier.SVMClassifier):
    """Probabilities of three classes and more as libsvm and ONNX Runtime have them; onnx.reference multiplies matrices in one place."""

    def _probabilities(self, scores: np.ndarray, class_count: int) -> np.ndarray:
        """The p for which r[j, i] p[i] and r[i, j] p[j] differ least, r[i, j] the probability of class i against class j."""
        told, r = vars(self._svm.atts), np.zeros((class_count, class_count), scores.dtype)
        lines = scores * told["prob_a"] + told["prob_b"]
        for (i, j), line in zip(combinations(range(class_count), 2), lines, strict=True):
            r[i, j] = np.clip(1 - compute_logistic(line), 1e-7, 1 - 1e-7)
            r[j, i] = 1 - r[i, j]
        return _coupled(r)


def _coupled(r: np.ndarray) -> np.ndarray:
    """multiclass_probability of libsvm (Wu, Lin and Weng, 2004, algorithm 2), with its bounds on turns and error."""
    count = len(r)
    q = np.diag((r * r).sum(axis=0)) - r.T * r
    p = np.full(count, 1 / count, r.dtype)
    for _ in range(max(100, count)):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < 0.005 / count:
            break
        for i in range(count):
            step = (pqp - qp[i]) / q[i, i]
            p[i] += step
            pqp = (pqp + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) ** 2
            qp = (qp + step * q[i]) / (1 + step)
            p /= 1 + step
    return p


class _Normalizer(op_normalizer.Normalizer):
    """MAX divides by the largest element, as specified; onnx.reference divides by the largest absolute value."""

    def _run(self, x: np.ndarray, norm: str | None = None) -> tuple[np.ndarray]:
        if norm != "MAX":
            (result,) = super()._run(x, norm=norm)  # type: ignore[no-untyped-call]
            return (result,)
        size = x.max(axis=-1, keepdims=True)
        return (x / np.where(size == 0, 1, size),)


def _in_float32(operator: type[OpRun]) -> type[OpRun]:
    """The operator with results in float32, as they are specified whatever it is given; onnx.reference's are in the type of x."""

    def run(self: OpRun, *operands: object, **attributes: object) -> tuple[np.ndarray, ...]:
        results: tuple[np.ndarray, ...] = operator._run(self, *operands, **attributes)  # type: ignore[no-untyped-call]
        return tuple(value.astype(np.float32) if value.dtype == np.float64 else value for value in results)

    return type(operator.__name__.removeprefix("_"), (operator,), {"_run": run, "__module__": __name__})


LinearClassifier = _in_float32(op_linear_classifier.LinearClassifier)
LinearRegressor = _in_float32(op_linear_regressor.LinearRegressor)
Normalizer = _in_float32(_Normalizer)
Scaler = _in_float32(op_scaler.Scaler)
SVMClassifier = _in_float32(_SVMClassifier)
SVMRegressor = _in_float32(op_svm_regressor.SVMRegressor)
TreeEnsembleClassifier = _in_float32(op_tree_ensemble_classifier.TreeEnsembleClassifier)
TreeEnsembleRegressor = _in_float32(op_tree_ensemble_regressor.TreeEnsembleRegressor)
