"""`anycann infer`: run a model once on given files and write what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
import re
import time
from typing import Any

import click
import numpy as np

from anycann.support.errors import UnsupportedError
from anycann.support.files import atomic_write, file_error
from anycann.support.records import dataclass
from anycann.tools.engines import import_engine, open_anycann
from anycann.tools.model_options import GivenInputs, input_options, model_argument, threads_option
from anycann.tools.output import console, format_dims, format_seconds, json_option, print_json, table

FORMATS = ("npy", "bin", "txt")


@dataclass(frozen=True)
class Written:
    """One output: its numbers in short, and the file it went to ("" for none)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None
    maximum: float | None
    mean: float | None
    file: str


def file_name(index: int, name: str, suffix: str) -> str:
    """`0_logits.npy`: the output's number and its name with everything replaced that a file system might not like."""
    return f"{index}_{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[:100]}.{suffix}"


def write_array(path: Path, array: np.ndarray[Any, np.dtype[Any]], suffix: str) -> None:
    """One array as .npy, as raw elements (.bin) or as text, one element a line (.txt)."""
    with atomic_write(path) as file:
        if suffix == "npy":
            np.save(file, array, allow_pickle=False)
        elif suffix == "bin":
            file.write(np.ascontiguousarray(array).tobytes())
        else:
            np.savetxt(file, array.reshape(-1), fmt="%.9g" if array.dtype.kind == "f" else "%s")


def save_outputs(outputs: Mapping[str, Any], folder: str | None, suffix: str) -> list[Written]:
    """Write every output into `folder` (made if missing; None writes nothing). Raises UnsupportedError for a sequence."""
    for name, value in outputs.items():
        if isinstance(value, (list, dict)) or value is None:
            raise UnsupportedError(f"output {name} is a {type(value).__name__}, not a tensor: infer writes tensors only")
    if folder:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_error(folder, "write", error) from error
    written = []
    for index, (name, value) in enumerate(outputs.items()):
        array = np.asarray(value)
        path = Path(folder) / file_name(index, name, suffix) if folder else None
        if path:
            write_array(path, array, suffix)
        written.append(_summary(name, array, str(path or "")))
    return written


def _summary(name: str, array: np.ndarray[Any, np.dtype[Any]], file: str) -> Written:
    numbers = array.astype(np.float64).reshape(-1) if array.dtype.kind in "biuf" and array.size else None
    low, high, mean = (None, None, None) if numbers is None else (float(numbers.min()), float(numbers.max()), float(numbers.mean()))
    return Written(name, str(array.dtype), array.shape, low, high, mean, file)


@click.command("infer")
@model_argument
@input_options
@click.option(
    "-o", "--output", "folder", type=click.Path(file_okay=False), help="Folder for the outputs; without it they are only summed up."
)
@click.option("--format", "suffix", type=click.Choice(FORMATS), default="npy", show_default=True, help="Kind of the output files.")
@threads_option
@json_option
def infer_command(model: str, given: GivenInputs, folder: str | None, suffix: str, threads: int | None, as_json: bool) -> None:
    """Run MODEL (.om or .onnx) once on the given inputs."""
    import_engine("anycann")
    started = time.perf_counter()
    engine = open_anycann(model, threads)
    loaded = time.perf_counter()
    feeds = given.feeds(engine.inputs)
    before = time.perf_counter()
    outputs = engine.run(feeds)
    run_seconds = time.perf_counter() - before
    written = save_outputs(outputs, folder, suffix)
    if as_json:
        facts = {"load_seconds": loaded - started, "run_seconds": run_seconds, "outputs": [asdict(row) for row in written]}
        print_json({"model": model, **facts})
        return
    rows = [(row.name, row.dtype, format_dims(row.shape), *_numbers(row), row.file) for row in written]
    console().print(table(("output", "dtype", "shape", "min", "max", "mean", "file"), rows, numbers=("min", "max", "mean")))
    console().print(f"loaded in {format_seconds(loaded - started)}, ran in {format_seconds(run_seconds)}")


def _numbers(row: Written) -> tuple[str, ...]:
    return tuple("-" if number is None else f"{number:.6g}" for number in (row.minimum, row.maximum, row.mean))
