"""Operators of ai.onnx.ml that onnx.reference has no meaning of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx.reference.op_run import OpRun


class ZipMap(OpRun):
    """A dictionary for each row of x: the label of each column, and what stands there."""

    op_domain = "ai.onnx.ml"

    def _run(
        self, x: np.ndarray, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
    ) -> tuple[list[dict[int | str, float]]]:
        labels: list[int | str] = [*(classlabels_int64s or classlabels_strings or ())]
        return ([dict(zip(labels, row, strict=True)) for row in x.reshape(-1, len(labels)).tolist()],)
