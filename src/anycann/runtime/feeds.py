"""Arrays at the border of a program: the caller's inputs, checked before native code reads them, and the arrays it gets back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.runtime import memory
from anycann.support.errors import UsageError


class Port:
    """Input or output number `index`: what is accepted there. `shape` is None if it is open or the value is no tensor of numbers."""

    def __init__(self, spec: TensorSpec, index: int, role: str):
        self.name = spec.name
        self.where = f"{role} {index} ({spec.name!r})"
        self.dtype = memory.numpy_dtype(spec.dtype)
        self.is_object = self.dtype.hasobject or self.dtype.kind in "US"
        self.open_shape = spec.shape
        static = tuple(size for size in spec.shape if isinstance(size, int))
        self.shape = static if len(static) == len(spec.shape) and not self.is_object else None

    def accept(self, value: object) -> object:
        """`value` ready for kernels: itself if it is aligned and row-major, else a copy. Raises UsageError for another dtype or shape."""
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape:
            flags = value.flags
            return value if flags.c_contiguous and flags.aligned else np.require(value, requirements=("C", "A"))
        if self.is_object:
            return value
        return self._converted(value)

    def _converted(self, value: object) -> np.ndarray:
        """A scalar, a subclass, another byte order, or an open shape."""
        if not isinstance(value, np.ndarray | np.generic):
            raise UsageError(f"{self.where} is a {type(value).__name__}; accepted: a numpy array of {self._accepted()}")
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") != self.dtype or not self._fits(array.shape):
            raise UsageError(f"{self.where} is {array.dtype.name}{list(array.shape)}; accepted: {self._accepted()}")
        return np.require(array, self.dtype, ("C", "A"))

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self.open_shape) and all(
            not isinstance(size, int) or size == got for size, got in zip(self.open_shape, shape, strict=True)
        )

    def _accepted(self) -> str:
        return f"{self.dtype.name}[{', '.join('?' if size is None else str(size) for size in self.open_shape)}]"

    def check_buffer(self, array: object) -> None:
        """Raises UsageError unless the caller's `array` can hold this output."""
        if not isinstance(array, np.ndarray) or array.dtype != self.dtype or not self._fits(array.shape):
            got = f"{array.dtype.name}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise UsageError(f"the buffer for {self.where} is {got}; accepted: a numpy array of {self._accepted()}")
        if not array.flags.writeable:
            raise UsageError(f"the buffer for {self.where} is read-only; accepted: a writeable array")


def usable_directly(array: np.ndarray, others: Sequence[object]) -> bool:
    """True if kernels may write into the caller's `array` while they read and write `others`."""
    flags = array.flags
    plain = flags.c_contiguous and flags.aligned
    return plain and not any(isinstance(other, np.ndarray) and memory.overlaps(array, other) for other in others)
