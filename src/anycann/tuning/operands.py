"""What a kernel reads and writes, as a measuring process needs to know it: sizes, element types, and values where they matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.codegen.recipe import Recipe
from anycann.codegen.tail import Constants
from anycann.support.records import dataclass
from anycann.te.contractions import operands
from anycann.te.expression import Load
from anycann.te.layout import ND, element_count
from anycann.te.tensor import Compute, Constant, Contraction, Placeholder, Reduction, Tensor
from anycann.te.traversal import walk

Array = npt.NDArray[Any]

# Larger constants are made up again when they are needed; their values do not matter for speed.
KEPT_BYTES = 64 * 1024


@dataclass(frozen=True)
class Operand:
    """One buffer of a kernel: elements in memory (padding lanes included) and their dtype's name; `value` where it is known."""

    name: str
    count: int
    dtype: str
    value: Array | None = None


@dataclass(frozen=True)
class Known:
    """A constant of the model: its value, or shape and dtype of one whose value was not kept."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Array | None

    def array(self) -> Array:
        """The value, or one as likely."""
        if self.value is not None:
            return self.value
        rng = np.random.default_rng(len(self.shape) + sum(self.shape))
        if self.dtype.kind in "iub":
            return rng.integers(0, 100, self.shape).astype(self.dtype)
        return (rng.standard_normal(self.shape, np.float32) / 16).astype(self.dtype)


def inputs_of(recipe: Recipe, constants: Mapping[str, Known]) -> dict[str, Operand]:
    """Every tensor in memory that a kernel of this recipe may read, by name."""
    found = {}
    for source in _placeholders([o.tensor for o in recipe.outputs]):
        count = element_count(recipe.layouts.get(source.name, ND), source.shape, recipe.target.lanes)
        known = constants.get(source.name)
        value = source.value if isinstance(source, Constant) else known.array() if known is not None else None
        found[source.name] = Operand(source.name, count, source.dtype.name, value)
    return found


def outputs_of(recipe: Recipe) -> dict[str, Operand]:
    """The buffers a kernel of this recipe writes, by name."""
    found = {}
    for output in recipe.outputs:
        count = element_count(output.place.layout, output.place.shape, recipe.target.lanes)
        found[output.name] = Operand(output.name, count, output.tensor.dtype.name)
    return found


def known_constants(recipe: Recipe, constants: Constants) -> dict[str, Known]:
    """The constants among the operands, small ones with their values."""
    found = {}
    for source in _placeholders([o.tensor for o in recipe.outputs]):
        value = None if isinstance(source, Constant) else constants(source.name)
        if value is not None:
            found[source.name] = Known(value.shape, value.dtype, value.copy() if value.nbytes <= KEPT_BYTES else None)
    return found


def _placeholders(roots: list[Tensor]) -> Iterator[Placeholder]:
    """The tensors in memory below `roots`, each once."""
    stack, seen = list(roots), set[int]()
    while stack:
        tensor = stack.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if isinstance(tensor, Placeholder):
            yield tensor
        elif isinstance(tensor, Compute | Reduction):
            stack += [e.tensor for e in walk(tensor.body) if isinstance(e, Load)]
        elif isinstance(tensor, Contraction):
            stack += operands(tensor.operator)
