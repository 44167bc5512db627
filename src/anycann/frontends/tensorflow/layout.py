"""TensorFlow's pictures have their channels last, ONNX's operators want them second: a value may be there in either order, or in both.

A convolution gives its result with channels first, and what follows takes it as it is: elementwise nodes, normalisation, pooling,
concatenation, padding, reductions. Only a node to which the order of axes matters (a Reshape, an output) brings channels back to the end.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import Builder, sizes_of
from anycann.support.errors import UnsupportedError
from anycann.support.records import dataclass


class NotStacked(UnsupportedError):
    """A list of tensors is used in a way that its items alone do not serve."""


Branch = tuple[ir.Value, bool]  # the condition of a Switch, and the side of it


@dataclass(frozen=True)
class Padded:
    """`source` with zeros around: (before, after) for every axis in TensorFlow's order."""

    source: Tensor
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Reserved:
    """A list of tensors (TensorList, TensorArray) that nothing was written to yet. element: the shape of each; None: not known.

    in_turn: the list as a turn of a loop finds it, which has what the turns before wrote.
    """

    size: ir.Value
    dtype: np.dtype
    element: tuple[int | None, ...] | None
    in_turn: bool = False


@dataclass(frozen=True)
class Written:
    """`list_` with `item` at place `index`."""

    list_: Reserved
    index: ir.Value
    item: ir.Value

    def stack(self, builder: Builder) -> ir.Value:
        """The items, zeros but for the one. Raises NotStacked for a list that has others."""
        if self.list_.in_turn:
            raise NotStacked("a list of tensors is read in the loop that writes it")
        one = builder.constant([1], np.int64)
        size, place = (builder.op("Cast", value, to=int(ir.DataType.INT64)) for value in (self.list_.size, self.index))
        sizes = builder.op("Concat", builder.op("Reshape", size, one), builder.op("Shape", self.item), axis=0)
        empty = builder.op("Expand", builder.constant(0, self.list_.dtype), sizes)
        item = builder.op("Unsqueeze", self.item, builder.constant([0], np.int64))
        return builder.op("ScatterND", empty, builder.op("Reshape", place, builder.constant([1, 1], np.int64)), item)


@dataclass(eq=False)
class Tensor:
    """A result of a node of TensorFlow. `last`: its axes in TensorFlow's order; `first`: axis -1 moved to place 1. One of them is there.

    branches: the sides of conditions on which the value means something. dead: no condition leads here. padded: what it is with zeros
    around it, which a convolution can add by itself. A list of tensors is their stack; reserved, written: one that is none yet.
    """

    last: ir.Value | None = None
    first: ir.Value | None = None
    branches: frozenset[Branch] = field(default_factory=frozenset)
    dead: bool = False
    padded: Padded | None = None
    reserved: Reserved | None = None
    written: Written | None = None

    @property
    def any(self) -> ir.Value:
        """The value in the order it is there in."""
        value = self.last if self.last is not None else self.first
        assert value is not None
        return value

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """Sizes in TensorFlow's order."""
        if self.last is not None:
            return sizes_of(self.last)
        sizes = sizes_of(self.any)
        return None if sizes is None else (sizes[0], *sizes[2:], sizes[1])


def channels_last(builder: Builder, tensor: Tensor) -> ir.Value:
    """The value in TensorFlow's order."""
    if tensor.written is not None:
        tensor.last = tensor.written.stack(builder)
        tensor.written = None
    if tensor.last is None:
        if tensor.reserved is not None:
            raise NotStacked("a list of tensors is read before anything is written to it")
        assert tensor.first is not None
        rank = _rank(tensor.first)
        tensor.last = _moved(builder, tensor.first, [0, *range(2, rank), 1])
    return tensor.last


def channels_first(builder: Builder, tensor: Tensor) -> ir.Value:
    """The value with its channels at place 1."""
    if tensor.first is None:
        assert tensor.last is not None
        rank = _rank(tensor.last)
        tensor.first = _moved(builder, tensor.last, [0, rank - 1, *range(1, rank - 1)])
    return tensor.first


def first_axis(axis: int, rank: int) -> int:
    """Where an axis of TensorFlow's order is when channels are first."""
    axis %= rank
    return axis if axis == 0 else 1 if axis == rank - 1 else axis + 1


def _rank(value: ir.Value) -> int:
    assert value.shape is not None, "the order of axes is only changed where their number is known"
    return len(value.shape)


def _moved(builder: Builder, value: ir.Value, order: list[int]) -> ir.Value:
    """The axes in another order: a view where at most one of those that move is longer than 1."""
    sizes = sizes_of(value) or ()
    kept = [axis for axis in order if sizes[axis] != 1]
    if kept != sorted(kept) or sum(sizes[axis] is None for axis in order) > 1:
        return builder.op("Transpose", value, perm=order)
    return builder.op("Reshape", value, builder.constant([-1 if sizes[axis] is None else sizes[axis] for axis in order], "int64"))
