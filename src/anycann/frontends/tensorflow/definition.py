"""One node of TensorFlow under conversion, and the table of operators: `@operator("Relu")` above a function from `Call` to results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import known_array, sizes_of
from anycann.frontends.tensorflow.graph import SourceNode
from anycann.frontends.tensorflow.layout import Tensor, channels_first, channels_last
from anycann.frontends.tensorflow.values import numpy_dtype
from anycann.support.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from anycann.frontends.tensorflow.conversion import Conversion

Result: TypeAlias = "Tensor | ir.Value | Sequence[Tensor | ir.Value]"
Convert: TypeAlias = "Callable[[Call], Result]"
T = TypeVar("T")
DEAD, MISSING = Tensor(dead=True), Tensor()  # what no condition leads to, and what an operator without a row would give
HUGE = int(np.iinfo(np.int64).max)


class Call:
    """A node with its operands. Operands are named by number; `self.op` adds a node to the graph that is built."""

    def __init__(self, conversion: Conversion, node: SourceNode, tensors: Sequence[Tensor]):
        self.conversion, self.node, self.tensors = conversion, node, tensors
        builder = self.builder = conversion.builder
        self.op, self.ops, self.constant = builder.op, builder.ops, builder.constant

    # ---- operands
    def tensor(self, number: int) -> Tensor:
        """An operand in whatever order it is there. Raises ModelError if it is missing."""
        if number >= len(self.tensors):
            raise ModelError(f"{self.node} has {len(self.tensors)} inputs; input {number} is missing")
        return self.tensors[number]

    def value(self, number: int) -> ir.Value:
        """An operand in TensorFlow's order of axes."""
        return channels_last(self.builder, self.tensor(number))

    def picture(self, number: int) -> ir.Value:
        """An operand with its channels at place 1, wherever `data_format` has them."""
        if not self.channels_are_last:
            return self.value(number)
        self.rank(number)
        return channels_first(self.builder, self.tensor(number))

    def as_picture(self, value: ir.Value) -> Tensor:
        """A result with its channels at place 1."""
        return Tensor(first=value) if self.channels_are_last else Tensor(last=value)

    def is_only_reader(self, number: int) -> bool:
        """Whether nobody else reads what the node behind an operand gives."""
        return self.conversion.readers.get(self.node.inputs[number].node, 0) == 1

    @property
    def channels_are_last(self) -> bool:
        """What `data_format` says."""
        return self.text("data_format", "NHWC").endswith("C")

    def shape(self, number: int) -> tuple[int | None, ...] | None:
        """Sizes of an operand in TensorFlow's order; None for open ones and for an unknown rank."""
        return self.tensor(number).shape

    def rank(self, number: int) -> int:
        """Number of sizes. Raises UnsupportedError where it is not known."""
        shape = self.shape(number)
        if shape is None:
            raise UnsupportedError(f"{self.node}: the number of sizes of input {number} is not known; say the inputs' with --input_shape")
        return len(shape)

    def dtype(self, number: int) -> np.dtype:
        """Element type of an operand."""
        found = self.tensor(number).any.dtype
        assert found is not None
        return np.dtype(found.numpy())

    def known(self, number: int, what: str) -> np.ndarray:
        """The array of an operand that must be known beforehand. Raises UnsupportedError."""
        found = self.known_or_none(number)
        if found is None:
            raise UnsupportedError(f"{self.node}: input {number} ({what}) is computed; it must be a constant")
        return found

    def known_or_none(self, number: int) -> np.ndarray | None:
        """The array of an operand that is known beforehand."""
        return known_array(self.value(number))

    def axis(self, number: int, rank_of: int) -> int:
        """An axis that is an operand, counted from the front of operand `rank_of`."""
        axis = int(self.known(number, "axis").reshape(-1)[0])
        return axis if axis >= 0 else axis + self.rank(rank_of)

    def integers(self, number: int) -> ir.Value:
        """An operand as int64: sizes, places, repetitions."""
        return self.cast(self.value(number), np.int64)

    # ---- attributes
    def attribute(self, name: str, default: T) -> T:
        """An attribute, or its default."""
        found = self.node.attributes.get(name)
        return default if found is None else cast(T, found)

    def text(self, name: str, default: str) -> str:
        """An attribute that is text."""
        found = self.attribute(name, default.encode())
        return found.decode()

    def integers_of(self, name: str) -> list[int]:
        """An attribute that is a list of integers."""
        return [int(number) for number in cast("list[int]", self.attribute(name, []))]

    def dtype_of(self, name: str, default: object = np.int32) -> np.dtype:
        """An attribute that is an element type."""
        found = self.node.attributes.get(name)
        return np.dtype(default) if found is None else numpy_dtype(cast(int, found))  # type: ignore[call-overload]

    # ---- nodes
    def cast(self, value: ir.Value, dtype: object) -> ir.Value:
        """The value in another element type."""
        wanted = ir.DataType.from_numpy(np.dtype(dtype))  # type: ignore[call-overload]
        return value if value.dtype == wanted else self.op("Cast", value, to=int(wanted))

    def like(self, number: object, value: ir.Value) -> ir.Value:
        """A constant of the element type of `value`."""
        assert value.dtype is not None
        return self.constant(number, value.dtype.numpy())

    def reshaped(self, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """The value in another shape; 0 keeps a size, -1 is what is left."""
        return self.op("Reshape", value, self.constant(list(sizes), np.int64))

    def sizes(self, value: ir.Value) -> ir.Value:
        """The sizes as a row of int64, known where they are."""
        sizes = sizes_of(value)
        if sizes is not None and None not in sizes:
            return self.constant(np.array(sizes, np.int64))
        return self.op("Shape", value)

    def fail(self, reason: str) -> UnsupportedError:
        """The error that says what of this node is not there."""
        return UnsupportedError(f"{self.node}: {reason}")


OPERATORS: dict[str, Convert] = {}


def operator(names: str) -> Callable[[Convert], Convert]:
    """Define how the operators of these names are converted."""

    def define(convert: Convert) -> Convert:
        for name in names.split():
            assert name not in OPERATORS, f"{name} is defined twice"
            OPERATORS[name] = convert
        return convert

    return define
