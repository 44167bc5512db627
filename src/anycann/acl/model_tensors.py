"""The inputs and outputs of a loaded model as AscendCL tells of them, and the sets of shapes it was compiled for."""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from anycann.acl import types
from anycann.om.plan import TensorSpec
from anycann.runtime.memory import numpy_dtype
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Gear:
    """One set of shapes of a model: `sizes` as the option of atc gave them (a batch, a height and width, all open sizes).

    further: the inputs behind the model's own, with settings of dynamic AIPPs, which no program of AscendCL sees. shapes: what the model's
    own inputs come to, behind a dynamic AIPP.
    """

    sizes: tuple[int, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    further: tuple[TensorSpec, ...]
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Tensor:
    """Input or output of a model. Open sizes are -1. `most_bytes`: its size in the largest gear, 0 for open shapes without gears."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    most_bytes: int
    format: int

    @property
    def data_type(self) -> int:
        return types.data_type_of(self.dtype)


def bytes_of(spec: TensorSpec) -> int:
    """Bytes of a tensor; 0 while a size is open."""
    sizes = [size for size in spec.shape if isinstance(size, int)]
    return math.prod(sizes) * numpy_dtype(spec.dtype).itemsize if len(sizes) == len(spec.shape) and spec.dtype != "object" else 0


def dtype_of(tensor: Tensor) -> np.dtype[Any]:
    """The numpy dtype of an input or output."""
    return numpy_dtype(tensor.dtype)


def sizes_of(shape: Sequence[object]) -> tuple[int, ...]:
    """A shape with -1 for its open sizes."""
    return tuple(size if isinstance(size, int) else -1 for size in shape)
