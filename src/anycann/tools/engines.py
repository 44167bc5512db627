"""A model opened for running, by AnyCANN or by ONNX Runtime, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
import importlib
from typing import Any, Protocol, TypeAlias

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.support.errors import ModelError, UsageError
from anycann.support.records import dataclass

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# ONNX's names of element types -> numpy's; every other one has the same name in both
_NUMPY_NAMES = {"float": "float32", "double": "float64", "string": "object"}


class Engine(Protocol):
    """What can be fed and run. `inputs` are the model's, with None or a symbol for an open size."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...
    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class SessionEngine:
    """A session with the interface of ONNX Runtime's: AnyCANN's own or that one."""

    name: str
    session: Any

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(item.name, dtype_of(item.type), tuple(item.shape)) for item in self.session.get_inputs())

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Outputs by name: arrays, or lists for sequences."""
        names = [item.name for item in self.session.get_outputs()]
        return dict(zip(names, self.session.run(None, dict(feeds)), strict=True))


def dtype_of(type_text: str) -> str:
    """`tensor(float)` -> "float32"; a type that is no tensor stays as it is."""
    if type_text.startswith("tensor("):
        inner = type_text[len("tensor(") : -1]
        return _NUMPY_NAMES.get(inner, inner)
    return type_text


def open_anycann(path: str, threads: int | None = None) -> SessionEngine:
    """The model in an AnyCANN session; an .onnx file is compiled first. `threads`: None is one for each processor."""
    from anycann.session import InferenceSession

    return SessionEngine("anycann", InferenceSession(path, num_threads=threads))


def open_onnxruntime(path: str, threads: int | None = None) -> SessionEngine:
    """The model in ONNX Runtime on the processor. Raises UsageError where it is not installed, ModelError where it refuses the model."""
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError:
        raise UsageError("--vs onnxruntime needs the package onnxruntime, which is not installed") from None
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # engines are measured in turn on the same processors: threads that wait for work after a run would take them from the next engine
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if threads:
        options.intra_op_num_threads = threads
    try:
        return SessionEngine("onnxruntime", ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
    except Exception as error:
        raise ModelError(f"ONNX Runtime refuses {path}: {error}") from error


_MODULES = {"anycann": "anycann.session", "onnxruntime": "onnxruntime"}


def import_engine(name: str) -> None:
    """Import what opening a model needs, so that a clock started afterwards measures the opening alone."""
    try:
        importlib.import_module(_MODULES[name])
    except ImportError:
        return  # opening says so


OPENERS = {"anycann": open_anycann, "onnxruntime": open_onnxruntime}
