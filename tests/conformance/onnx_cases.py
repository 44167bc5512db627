"""The cases of ONNX's backend suite: where they are, how their data is read and compared, and what running one tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from corrections import CORRECTIONS, correct_model
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")


@dataclass(frozen=True)
class Outcome:
    """What a case came to. `native`: every step of it ran as generated code. `error` is empty when it passed."""

    name: str
    error: str = ""
    native: bool = False
    seconds: float = 0.0


@cache
def all_cases() -> dict[str, TestCase]:
    """Every case of onnx, by `kind/name`."""
    return {f"{kind}/{case.name}": case for kind in KINDS for case in sorted(load_model_tests(kind=kind), key=lambda case: case.name)}


def run_case(case: TestCase) -> bool:
    """Run every data set of `case`; whether all of its steps were native. Raises AssertionError, or what the backend raised."""
    from anycann.onnx_backend import Backend
    from anycann.session import SessionOptions

    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    correct_model(case.name, model)
    prepared = Backend.prepare(model, options=SessionOptions(num_threads=1, poison=True))
    for data in sorted(folder.glob("test_data_set_*")):
        inputs = [_read(data / f"input_{n}.pb", model.graph.input[n].type) for n in range(len(list(data.glob("input_*.pb"))))]
        wanted = [_read(data / f"output_{n}.pb", model.graph.output[n].type) for n in range(len(list(data.glob("output_*.pb"))))]
        assert_similar(prepared.run(inputs), _corrected(case.name, wanted), case.rtol, case.atol)
    reports = prepared.session.engines()
    return all(report.engine == "AiCore" for report in reports)


def _corrected(name: str, wanted: list[Any]) -> list[Any]:
    """The data of onnx 1.21, or what 1.22 has in its place."""
    if name not in CORRECTIONS or CORRECTIONS[name].output is None:
        return wanted
    corrected = np.array(CORRECTIONS[name].output, wanted[0].dtype)
    assert not np.array_equal(corrected, wanted[0]), f"{name} is right in this onnx: take its correction out"
    return [corrected]


def assert_similar(got: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> None:
    """What onnx.backend.test.runner asks for: the same types and shapes, values within the case's tolerance."""
    assert len(got) == len(wanted), f"{len(got)} outputs, {len(wanted)} are expected"
    for ours, theirs in zip(got, wanted, strict=True):
        if isinstance(theirs, (list, tuple)):
            assert isinstance(ours, (list, tuple)), f"a {type(ours).__name__} instead of a sequence"
            assert_similar(ours, theirs, rtol, atol)
        elif theirs is None:
            assert ours is None, "a value instead of an absent optional"
        else:
            _assert_array(ours, np.asarray(theirs), rtol, atol)


def _assert_array(ours: Any, theirs: np.ndarray, rtol: float, atol: float) -> None:
    assert isinstance(ours, np.ndarray), f"a {type(ours).__name__} instead of an array"
    assert ours.shape == theirs.shape, f"shape {ours.shape}, expected {theirs.shape}"
    if theirs.dtype == object:
        np.testing.assert_array_equal(ours, theirs)
        return
    assert ours.dtype == theirs.dtype, f"dtype {ours.dtype}, expected {theirs.dtype}"
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def _read(path: Path, type_: onnx.TypeProto) -> Any:
    content = path.read_bytes()
    if type_.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if type_.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))
