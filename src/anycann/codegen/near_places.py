"""Reads at places that a table gives, where neighbours lie within a vector: one load and a permutation in place of a gather.

The places of a Resize rise, by no more than a vector has lanes from one of its lanes to the last.
"""

from __future__ import annotations

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target
from anycann.te.dtypes import DType
from anycann.te.expression import Load, Var
from anycann.te.simplify import Linear, linear
from anycann.te.tensor import Constant
from anycann.te.traversal import walk

_INSTRUCTIONS = {8: "llvm.x86.avx2.permps", 16: "llvm.x86.avx512.permvar.sf.512"}


def permutes_floats(target: Target) -> bool:
    """True if a target has an instruction that permutes the float32 of a vector by another vector."""
    return target.is_x86 and target.lanes in _INSTRUCTIONS and target.has("avx512f" if target.lanes == 16 else "avx2")


def near_places(form: Linear, vector: Var | None, lanes: int) -> Load | None:
    """The term of `form` that is read from a table by `vector` alone and rises by less than `lanes` within as many lanes, if nothing else
    differs between them."""
    differing = [(atom, factor) for atom, factor in form.terms if vector in walk(atom)]
    if len(differing) != 1 or differing[0][1] != 1 or not isinstance(differing[0][0], Load):
        return None
    load = differing[0][0]
    table = getattr(load.tensor, "source", load.tensor)
    if not isinstance(table, Constant) or table.value.ndim != 1:
        return None
    index = linear(load.indices[0])
    if index.terms != ((vector, 1),) or index.constant:
        return None
    return load if _rises_slowly(table.value, lanes) else None


def _rises_slowly(places: np.ndarray, lanes: int) -> bool:
    last = np.minimum(np.arange(len(places)) + lanes - 1, len(places) - 1)
    return bool((np.diff(places) >= 0).all() and (places[last] - places < lanes).all())


def load_near(e: Emitter, pointer: Value, size: int, first: Value, steps: Value, dtype: DType) -> Value:
    """The elements at `first` + steps[lane] of `size` that there are: steps (i32) are 0 in lane 0 and less than the lanes in all."""
    lanes = steps.lanes
    begin = e.smin(first, e.const(size - lanes))
    moved = e.binary("add", steps, e.splat(e.cast("trunc", e.sub(first, begin), "i32"), lanes))
    vector = e.load(e.gep(pointer, begin, dtype.storage), vector_type(dtype.storage, lanes), dtype.nbytes)
    return e.call(_INSTRUCTIONS[lanes], vector.type, [vector, moved])
