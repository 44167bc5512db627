"""Instead of tensors, figures of them: a table for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import csv
import os

import numpy as np

from anycann.runtime.dump.records import NCHW, DumpedTensor, Record

_FIGURES: dict[str, tuple[str, Callable[[np.ndarray], float]]] = {
    "Max": ("Max Value", lambda x: float(np.fmax.reduce(x))),
    "Min": ("Min Value", lambda x: float(np.fmin.reduce(x))),
    "Avg": ("Avg Value", lambda x: float(np.nansum(x) / max(x.size - np.isnan(x).sum(), 1))),
    "Nan": ("Count Nan", lambda x: int(np.isnan(x).sum())),
    "Negative Inf": ("Count Negative Inf", lambda x: int(np.isneginf(x).sum())),
    "Positive Inf": ("Count Positive Inf", lambda x: int(np.isposinf(x).sum())),
    "L2norm": ("L2Norm Value", lambda x: float(np.sqrt(np.nansum(x * x)))),
}
_HEAD = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape")


def write_statistics(path: str | os.PathLike[str], record: Record, names: Sequence[str]) -> None:
    """Write the figures `names` (of settings.STATISTICS) of every tensor of a record."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*_HEAD, *(_FIGURES[name][0] for name in names)])
        for role, tensors in (("Input", record.inputs), ("Output", record.outputs)):
            for number, tensor in enumerate(tensors):
                table.writerow([role, number, *_facts(tensor), *_figures(tensor.array, names)])


def _facts(tensor: DumpedTensor) -> list[object]:
    format_ = "NCHW" if tensor.format == NCHW else "ND"
    return [tensor.array.nbytes, tensor.array.dtype.name, format_, "x".join(map(str, tensor.array.shape))]


def _figures(array: np.ndarray, names: Sequence[str]) -> list[float]:
    if not array.size:
        return [0.0] * len(names)
    wide = array.astype(np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        return [_FIGURES[name][1](wide) for name in names]
