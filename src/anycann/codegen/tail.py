"""The elementwise end of a contraction: what is computed and stored for each finished vector of the product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
import itertools
from typing import Any, TypeAlias

import numpy as np

from anycann.codegen.accesses import FlatNest, resolve
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.lanes import Flat, Lanes
from anycann.codegen.nest_kernel import Output, placeholders
from anycann.codegen.nest_writer import NestWriter
from anycann.codegen.values import Value
from anycann.support.arrangement import Arrangement
from anycann.support.errors import InternalError
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.expression import Load, Op, Var
from anycann.te.layout import ND
from anycann.te.nest import build_nest
from anycann.te.tensor import Constant, Contraction, Placeholder, Tensor
from anycann.te.traversal import walk

Constants: TypeAlias = "Callable[[str], np.ndarray[Any, Any] | None]"  # the value of a placeholder, if it is known while compiling

FEW_LANES = 8  # so many are stored one by one faster than scattered
_FEW_OPERATIONS, _SHORT = 3, frozenset({"add", "sub", "mul", "min", "max"})  # of one instruction each

_serial = itertools.count()


@dataclass(frozen=True)
class Packed:
    """A constant in the order its kernel reads it, under the name it has in `Kernel.arguments`.

    With an `arrangement` it holds every element of the operand `source`, which can be read back from it.
    """

    name: str
    array: np.ndarray[Any, Any]
    source: str = ""
    arrangement: Arrangement | None = None


@dataclass(frozen=True)
class Workspace:
    """Memory in which the kernels of a group hand something over."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Generated:
    """A kernel and the constants that were packed for it. `before` runs first and leaves what the kernel reads in the workspace."""

    kernel: Kernel
    packed: tuple[Packed, ...] = ()
    before: Kernel | None = None
    workspace: Workspace | None = None


def pack(kind: str, array: np.ndarray[Any, Any], source: str = "", arrangement: Arrangement | None = None) -> Packed:
    """A packed constant under a name of its own; equal contents meet in the constant pool."""
    return Packed(f"{kind}:{next(_serial)}", array, source, arrangement)


def memory_name(tensor: Tensor) -> str:
    """The name of an operand, which must be in memory."""
    if not isinstance(tensor, Placeholder):
        raise InternalError("an operand of a contraction must be in memory")
    return tensor.name


def known_value(tensor: Tensor, constants: Constants) -> np.ndarray[Any, Any] | None:
    """The elements of an operand, which must be in memory, if they are known while compiling: of a table, or of a constant."""
    return tensor.value if isinstance(tensor, Constant) else constants(memory_name(tensor))


class Tail:
    """The elementwise end of a contraction: evaluated once for each finished vector of the product."""

    def __init__(
        self, anchor: Contraction, outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, vector_axis: int, split: bool
    ):
        tensors = [o.tensor for o in outputs]
        nest = build_nest(tensors)
        self.anchor, self.outputs, self.target = anchor, outputs, target
        self.axes = _axis_variables(anchor, nest.outer)
        along = self.axes[vector_axis]
        parts = [along] if split and along is not None else []
        flat, blocks = resolve(nest, [o.place for o in outputs], layouts, target.lanes, parts)
        self.block = blocks.get(along) if along is not None else None
        self.vector = None if along is None else self.block[1] if self.block is not None else along
        self.flat: FlatNest = flat
        self.vector_axis = vector_axis

    @property
    def inputs(self) -> list[str]:
        """Placeholders the tail reads."""
        return placeholders(self.flat)

    @property
    def is_short(self) -> bool:
        """True if little is written for each vector: one output as it lies in the product, after a few sums or products at most."""
        if len(self.outputs) > 1 or len(self.flat.stages) > 1 or self.flat.guards or self.flat.stages[0].guards:
            return False
        output, body = self.outputs[0], self.flat.stages[0].body
        operations = [expr.name for expr in walk(body) if isinstance(expr, Op) and expr.dtype.is_float]
        is_whole = (output.tensor.shape, output.layout) == (self.anchor.shape, ND)
        return is_whole and len(operations) <= _FEW_OPERATIONS and _SHORT.issuperset(operations)

    def writer(self, e: Emitter, first: int) -> NestWriter:
        """The writer of the tail, its pointers taken from argument slots `first` and up (tail inputs, then outputs)."""
        writer = NestWriter(self.flat, [o.tensor.dtype for o in self.outputs], self.target, self.vector, e)
        writer.bind(self.inputs, len(self.outputs), first)
        writer.existing = self._existing()
        return writer

    def _existing(self) -> int | None:
        """How many lanes of each vector exist, if it is always the same few and nothing else keeps a lane from being stored."""
        count, guards = self.anchor.shape[self.vector_axis], {*self.flat.guards, *(g for stage in self.flat.stages for g in stage.guards)}
        few = count <= min(FEW_LANES, self.target.lanes)
        return count if self.block is not None and few and len(guards) <= 1 else None

    @cached_property
    def far_operands(self) -> tuple[Load, ...]:
        """What is read of large operands in every row of the product, at places that need no reading: of a residual, not of a bias."""
        rows = {variable for axis, variable in enumerate(self.axes) if axis != self.vector_axis}
        loads = (load for stage in self.flat.stages if not stage.over for load in walk(stage.body) if isinstance(load, Load))
        far = ((load, set(walk(load.indices[0]))) for load in loads if _nbytes(load.tensor) > self.target.l1_bytes)
        return tuple(load for load, index in far if rows & index and not any(isinstance(expr, Load) for expr in index))

    def fetch(self, writer: NestWriter, e: Emitter, index: Sequence[Value]) -> None:
        """Ask for the lines of `far_operands` that the vector at `index` reads: they come while the product is computed."""
        self._place(writer, e, index)
        here = Lanes(e, 1, None, writer.values, writer.pointers)
        for load in self.far_operands:
            assert isinstance(load.tensor, Flat)
            e.prefetch(e.gep(writer.pointers[load.tensor.source.name], here.value(load.indices[0]), load.tensor.dtype.storage))

    def write(self, writer: NestWriter, e: Emitter, index: Sequence[Value], vector: Value, mask: Value | None = None) -> None:
        """Store the outputs for one vector of the product; `index` is that of its first lane."""
        self._place(writer, e, index)
        if self.vector is None:
            writer.stages(1, None, {id(self.anchor): e.extract(vector, 0) if vector.lanes > 1 else vector})
        else:
            writer.stages(vector.lanes, mask, {id(self.anchor): vector})

    def _place(self, writer: NestWriter, e: Emitter, index: Sequence[Value]) -> None:
        """Give the loops of the writer their values."""
        writer.e = e
        for axis, variable in enumerate(self.axes):
            if variable is None:
                continue
            writer.values[variable] = index[axis]
            if axis == self.vector_axis and self.block is not None:
                block, lane = self.block
                writer.values[block] = e.udiv(index[axis], self.target.lanes)
                writer.values[lane] = e.const(0)


def _nbytes(tensor: Tensor) -> int:
    """Bytes of an operand in memory; 0 of what is computed here."""
    return tensor.size * tensor.dtype.nbytes if isinstance(tensor, Flat) else 0


def _axis_variables(anchor: Contraction, outer: Sequence[Var]) -> list[Var | None]:
    """The loop of each axis of the contraction; None for an axis of extent 1."""
    loops = iter(outer)
    return [next(loops) if extent != 1 else None for extent in anchor.shape]
