"""Instead of tensors, figures of them: a table for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import csv
import io

import numpy as np

from anycann.runtime.dump.records import NCHW, DumpedTensor, Record

# "Count" is there whatever is asked for. Source of heads and names: adump of Ascend's runtime repository.
_FIGURES: dict[str, tuple[str, Callable[[np.ndarray], object]]] = {
    "Max": ("Max Value", np.fmax.reduce),
    "Min": ("Min Value", np.fmin.reduce),
    "Avg": ("Avg Value", lambda x: x.mean(dtype=np.float64)),
    "": ("Count", np.size),
    "Nan": ("Nan Count", lambda x: np.isnan(x).sum()),
    "Negative Inf": ("Negative Inf Count", lambda x: np.isneginf(x).sum()),
    "Positive Inf": ("Positive Inf Count", lambda x: np.isposinf(x).sum()),
    "L2norm": ("l2norm", lambda x: np.linalg.norm(x.astype(np.float64))),
}
_HEAD = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape")
_TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "bfloat16": "BF16"}


def statistics_text(record: Record, names: Sequence[str]) -> str:
    """The figures `names` (of settings.STATISTICS) of every tensor of a record, as the text of a CSV file."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    figures = [figure for name, figure in _FIGURES.items() if name in ("", *names)]
    table.writerow([*_HEAD, *(head for head, _ in figures)])
    for role, tensors in (("Input", record.inputs), ("Output", record.outputs)):
        for number, tensor in enumerate(tensors):
            table.writerow([role, number, *_facts(tensor), *_values(tensor.array, [figure for _, figure in figures])])
    return text.getvalue()


def _facts(tensor: DumpedTensor) -> list[object]:
    array, format_ = tensor.array, "NCHW" if tensor.format == NCHW else "ND"
    type_ = "DT_" + _TYPES.get(array.dtype.name, array.dtype.name.upper())
    return [array.nbytes, type_, format_, "x".join(map(str, array.shape))]


def _values(array: np.ndarray, figures: Sequence[Callable[[np.ndarray], object]]) -> list[object]:
    """The figures of an array; NA of complex numbers, and of one that has nothing in it."""
    numbers = array.reshape(-1)
    known = array.size and numbers.dtype.kind != "c"
    if numbers.dtype.kind == "V":  # bfloat16 and numbers of eight bits
        numbers = numbers.astype(np.float32)
    elif numbers.dtype == bool:
        numbers = numbers.astype(np.uint8)
    with np.errstate(all="ignore"):
        return [figure(numbers) if known or figure is np.size else "NA" for figure in figures]
