"""Files in and out: which files make one run, and how outputs are cut into samples again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import math
from pathlib import Path
import re

import numpy as np

from anycann.runtime.dump.records import read_record
from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tools.ais_bench.tensors import TensorDescription

PURE = "pure_infer_data"  # the name of data that is made up
_ENDINGS = (".npy", ".bin")
_DUMP_FILE = re.compile(r"(.*\.)?[0-9]+")  # operator.name.task.stream.time, or a number for what is too long


@dataclass(frozen=True)
class Sample:
    """The files of one run, by input; None stands for the first file again, where they do not fill the batch."""

    files: tuple[tuple[str | None, ...], ...]

    @property
    def per_run(self) -> int:
        return len(self.files[0])

    def names(self, place: int) -> list[str] | None:
        """The files of sample number `place` of the run; None if it only fills the batch."""
        names = [of_input[place] for of_input in self.files]
        return None if names[0] is None else [name or str(of_input[0]) for name, of_input in zip(names, self.files, strict=True)]


def samples_of(given: str | None, inputs: Sequence[TensorDescription], combine: bool) -> list[Sample]:
    """Cut the files of --input into runs. combine: as many files make one tensor as fill it. Raises UsageError."""
    if not given:
        return [Sample(((PURE,),) * len(inputs))]
    lists = _lists(given.split(","), len(inputs))
    count = _files_per_run(lists[0][0], inputs[0]) if combine else 1
    chunks = [list(_chunks(files, count)) for files in lists]
    if len({len(chunk) for chunk in chunks}) > 1:
        raise UsageError(f"the inputs have {', '.join(str(len(files)) for files in lists)} files; accepted: as many each")
    return [Sample(tuple(files)) for files in zip(*chunks, strict=True)]


def file_lists(paths: Sequence[str]) -> list[str]:
    """All files, folders opened, in order."""
    return [file for path in paths for file in (_in_folder(path) if Path(path).is_dir() else [path])]


def _lists(paths: Sequence[str], inputs: int) -> list[list[str]]:
    """The files of each input."""
    if all(Path(path).is_dir() for path in paths):
        if len(paths) != inputs:
            raise UsageError(f"--input names {len(paths)} folders; the model has {inputs} inputs")
        return [_in_folder(path) for path in paths]
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        raise UsageError(f"--input: {missing[0]} is not there; accepted: files of .npy or raw bytes, or a folder for each input")
    if len(paths) % inputs:
        raise UsageError(f"--input names {len(paths)} files; accepted: a multiple of {inputs}, the inputs of the model")
    each = len(paths) // inputs
    return [list(paths[at : at + each]) for at in range(0, len(paths), each)]


def _in_folder(path: str) -> list[str]:
    found = [str(file) for file in Path(path).iterdir() if file.suffix.lower() in _ENDINGS]
    if not found:
        raise UsageError(f"--input: {path} has no file that ends in {' or '.join(_ENDINGS)}")
    return sorted(found, key=lambda name: [int(part) if part.isdigit() else part.lower() for part in re.split(r"(\d+)", name)])


def _files_per_run(path: str, first: TensorDescription) -> int:
    nbytes = read_file(path).nbytes
    if not nbytes or first.realsize % nbytes or not first.realsize:
        raise UsageError(f"{path} has {nbytes} bytes; accepted: {first.realsize}, which input {first.name!r} has, or a part that fills it")
    return first.realsize // nbytes


def _chunks(files: Sequence[str], count: int) -> Iterator[tuple[str | None, ...]]:
    for at in range(0, len(files), count):
        chunk: list[str | None] = list(files[at : at + count])
        yield tuple(chunk + [None] * (count - len(chunk)))


def read_file(path: str) -> np.ndarray:
    """The array of an .npy file, the bytes of any other. Raises UsageError."""
    try:
        return np.asarray(np.load(path)) if path.lower().endswith(".npy") else np.fromfile(path, np.int8)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def read_inputs(sample: Sample, inputs: Sequence[TensorDescription], pure: str) -> list[np.ndarray]:
    """The arrays of one run."""
    return [_read_input(files, wanted, pure) for files, wanted in zip(sample.files, inputs, strict=True)]


def _read_input(files: Sequence[str | None], wanted: TensorDescription, pure: str) -> np.ndarray:
    if files[0] == PURE:
        return made_up(wanted.realsize, pure)
    parts = [read_file(str(file or files[0])) for file in files]
    return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])


def made_up(nbytes: int, kind: str) -> np.ndarray:
    """Bytes that are zero or random."""
    return np.random.default_rng().integers(0, 256, nbytes, np.uint8) if kind == "random" else np.zeros(nbytes, np.uint8)


def split_output(array: np.ndarray, count: int, axis: int) -> list[np.ndarray]:
    """One part for each sample of a run. Raises UsageError where the axis does not divide."""
    if count == 1:
        return [array]
    if axis >= array.ndim or array.shape[axis] % count:
        raise UsageError(
            f"an output of shape {list(array.shape)} cannot be cut into {count} parts on axis {axis} (--output_batchsize_axis)"
        )
    return np.split(array, count, axis)


def write_output(path: Path, array: np.ndarray) -> None:
    """As .npy, as text with a line for each row of the last axis, or as raw bytes."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".txt":
        form = "%f" if np.issubdtype(array.dtype, np.floating) else "%d"
        rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
        path.write_text("".join("".join(form % number + " " for number in row) + "\n" for row in rows))
    else:
        array.tofile(path)


def dumps_as_npy(folder: Path) -> None:
    """Write each tensor of each dump file below `folder` beside it: `<file>.input.0.npy`, `<file>.output.0.npy`, ... Raises ModelError."""
    for path in [path for path in folder.rglob("*") if path.is_file() and _DUMP_FILE.fullmatch(path.name)]:
        record = read_record(path)
        for role, tensors in (("input", record.inputs), ("output", record.outputs)):
            for number, tensor in enumerate(tensors):
                np.save(f"{path}.{role}.{number}.npy", tensor.array)


def parts_for(files: Sequence[str], inputs: int, jobs: int) -> list[str]:
    """The files of all inputs, those of each one after another, shared out over so many jobs; each share as --input takes it."""
    each = math.ceil(len(files) / inputs)
    of_inputs = [files[at : at + each] for at in range(0, len(files), each)]
    share = math.ceil(each / jobs)
    return [",".join(file for of_input in of_inputs for file in of_input[job * share : (job + 1) * share]) for job in range(jobs)]
