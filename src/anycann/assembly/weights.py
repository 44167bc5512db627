"""Known values on their way into a program: rounded to the storage type of the precision mode, each content once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
import mmap
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from anycann.om.plan import Buffer
from anycann.om.weights import Stored
from anycann.passes.precision import is_exact
from anycann.passes.widen import Widened
from anycann.support.mapped import forget_pages
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import cast
from anycann.te.tensor import Tensor

Array = npt.NDArray[Any]


class ConstantSink(Protocol):
    """Where weights go: om.constants.ConstantPool or om.growing.GrowingConstants."""

    def add(self, array: Array) -> Buffer:
        """Keep the elements and say where they lie."""


@dataclass(frozen=True)
class Weights:
    """`storage` is what float32 values are rounded to when they are kept (float16, bfloat16); None: not at all.

    rounds_results: results too, not only what is known; else they are stored as their type says, and a bias or a scale keeps its 24 bits.
    sources: names of the model's own weights, by the id of their tensor. places: where those lie that were packed without loss.
    """

    sink: ConstantSink
    storage: DType | None
    rounds_results: bool = True
    sources: Mapping[int, str] = field(default_factory=dict)
    places: dict[str, Stored] = field(default_factory=dict)

    def value(self, value: ir.Value | None) -> Array | None:
        """A known value as the storage type keeps it; None if it is not known."""
        if value is None or value.const_value is None:
            return None
        array: Array = value.const_value.numpy()
        if self.storage is None or array.dtype != np.float32 or (not self.rounds_results and array.size == max(array.shape, default=1)):
            return array
        if is_exact(value) or (isinstance(value.const_value, Widened) and self.storage is dtypes.float16):
            return array
        with np.errstate(over="ignore"):
            return array.astype(self.storage.numpy).astype(np.float32)

    def buffer(self, value: ir.Value) -> Buffer:
        """Where a known value lies among the constants."""
        array = self.value(value)
        assert array is not None
        buffer = self.sink.add(array)
        forget(value)
        return buffer

    def note(self, value: ir.Value, packed: np.dtype[Any], place: Stored) -> None:
        """A known value lies there, packed as it is, if it is the model's own and neither rounded nor converted."""
        name = self.sources.get(id(value.const_value))
        if name is not None and self.storage is None and value.const_value is not None and value.const_value.dtype.numpy() == packed:
            self.places[name] = place

    def stored(self, tensor: Tensor, value: ir.Value) -> Tensor:
        """A result, that of `value`, as it is kept in memory."""
        storage = self.storage
        if storage is None or not self.rounds_results or tensor.dtype is not dtypes.float32 or is_exact(value):
            return tensor
        return te.compute(tensor.shape, lambda *index: cast(cast(tensor[index], storage), dtypes.float32))


def forget(value: ir.Value) -> None:
    """A weight that was packed is not read again: its pages of the model file may go."""
    tensor = value.const_value
    if tensor is not None and tensor.nbytes > mmap.PAGESIZE:
        forget_pages((tensor.source if isinstance(tensor, Widened) else tensor).numpy())
