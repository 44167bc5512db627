"""What a kernel reads and writes, as a measuring process needs to know it: sizes, element types, and values where they matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.codegen.contract_dot_places import BYTES
from anycann.codegen.contract_dots import known_zero
from anycann.codegen.recipe import Recipe
from anycann.codegen.tail import Constants
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.contractions import Convolution, MatMul, operands
from anycann.te.expression import Load
from anycann.te.layout import NC1HWC0, ND, element_count, physical_shape
from anycann.te.tensor import Compute, Constant, Contraction, Placeholder, Reduction, Tensor
from anycann.te.traversal import walk

Array = npt.NDArray[Any]

# Of larger constants so much is kept of whole numbers, and repeated, for kernels of bytes depend on how large these are (`dot_direct.py`);
# floats do not matter for speed and are made up.
KEPT_BYTES = 64 * 1024


@dataclass(frozen=True)
class Blocks:
    """Elements in blocks of channels, [images, blocks, pixels, lanes]; of the last block only the lanes before `absent` are channels."""

    sizes: tuple[int, int, int, int]
    absent: int

    def real(self) -> npt.NDArray[np.bool_]:
        """Which elements are there, in memory order; the others may be anything."""
        found = np.ones(self.sizes, np.bool_)
        found[:, -1, :, self.absent :] = False
        return found.reshape(-1)


@dataclass(frozen=True)
class Operand:
    """One buffer of a kernel: elements in memory (padding lanes included) and their dtype's name; `value` where it is known.

    middle: what bytes without a value lie around, where that is known. blocks: where some elements are padding.
    """

    name: str
    count: int
    dtype: str
    value: Array | None = None
    middle: int | None = None
    blocks: Blocks | None = None


@dataclass(frozen=True)
class Known:
    """A constant of the model: its value, or the first elements of a large one, or none."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Array | None

    def array(self) -> Array:
        """The value, or one as likely."""
        if self.value is not None:
            return np.resize(self.value, self.shape)
        rng = np.random.default_rng(len(self.shape) + sum(self.shape))
        return (rng.standard_normal(self.shape, np.float32) / 16).astype(self.dtype)


def inputs_of(recipe: Recipe, constants: Mapping[str, Known]) -> dict[str, Operand]:
    """Every tensor in memory that a kernel of this recipe may read, by name."""
    found = {}
    roots = [o.tensor for o in recipe.outputs]
    middles = _middles(roots, constants)
    for source in _placeholders(roots):
        count = element_count(recipe.layouts.get(source.name, ND), source.shape, recipe.target.lanes)
        known = constants.get(source.name)
        value = source.value if isinstance(source, Constant) else known.array() if known is not None else None
        found[source.name] = Operand(source.name, count, source.dtype.name, value, middles.get(source.name))
    return found


def _middles(roots: list[Tensor], constants: Mapping[str, Known]) -> dict[str, int]:
    """What the inputs of products of bytes lie around, as far as it is known, for their kernels depend on it (`dot_sorted.py`)."""
    found: dict[str, int] = {}
    for tensor in _below(roots):
        operator = tensor.operator if isinstance(tensor, Contraction) else None
        if isinstance(operator, MatMul) and operator.around is not None and isinstance(operator.a, Placeholder):
            found[operator.a.name] = operator.around
        elif isinstance(operator, Convolution) and operator.x.dtype in BYTES and isinstance(operator.x, Placeholder):
            zero = known_zero(operator.zero_point, lambda name: constants[name].array() if name in constants else None, operator.x.dtype)
            found |= {} if zero is None else {operator.x.name: zero - (0 if operator.x.dtype is dtypes.uint8 else 128)}
    return found


def outputs_of(recipe: Recipe) -> dict[str, Operand]:
    """The buffers a kernel of this recipe writes, by name."""
    found = {}
    for output in recipe.outputs:
        count = element_count(output.place.layout, output.place.shape, recipe.target.lanes)
        blocks = _blocks(output.place.layout, output.place.shape, recipe.target.lanes)
        found[output.name] = Operand(output.name, count, output.tensor.dtype.name, blocks=blocks)
    return found


def _blocks(layout: str, shape: Sequence[int], lanes: int) -> Blocks | None:
    """How the padding of a buffer lies, if there is any."""
    if layout != NC1HWC0 or shape[1] % lanes == 0:
        return None
    images, blocks, *spatial, _ = physical_shape(layout, shape, lanes)
    return Blocks((images, blocks, math.prod(spatial), lanes), shape[1] % lanes)


def known_constants(recipe: Recipe, constants: Constants) -> dict[str, Known]:
    """The constants among the operands, with what is kept of them."""
    found = {}
    for source in _placeholders([o.tensor for o in recipe.outputs]):
        value = None if isinstance(source, Constant) else constants(source.name)
        if value is not None:
            found[source.name] = Known(value.shape, value.dtype, _kept(value))
    return found


def _kept(value: Array) -> Array | None:
    if value.nbytes <= KEPT_BYTES:
        return value.copy()
    return value.reshape(-1)[: KEPT_BYTES // value.itemsize].copy() if value.dtype.kind in "iub" else None


def _placeholders(roots: list[Tensor]) -> Iterator[Placeholder]:
    """The tensors in memory below `roots`, each once."""
    return (tensor for tensor in _below(roots) if isinstance(tensor, Placeholder))


def _below(roots: list[Tensor]) -> Iterator[Tensor]:
    """The tensors below `roots`, and these, each once."""
    stack, seen = list(roots), set[int]()
    while stack:
        tensor = stack.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        yield tensor
        if isinstance(tensor, Compute | Reduction):
            stack += [e.tensor for e in walk(tensor.body) if isinstance(e, Load)]
        elif isinstance(tensor, Contraction):
            stack += operands(tensor.operator)
