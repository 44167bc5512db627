"""How many vectors a loop takes at once: where elements are narrower than float32, and where columns are added up.

A vector of lanes holds as many bytes or halves as it holds float32, a quarter or half of a register. Four of them are loaded, packed and
stored as one. Only where nothing but a few operations is done to an element: more would not stay in registers.

A sum over rows reads a vector of each row, and comes back for the next one when the cache has lost the rest of the line, or every row is
in another page. With vectors side by side it reads some lines of each: 4 x 1024 rows of 1024 numbers take 0.09 of the time on a Zen 3,
where rows of 4 KiB meet in one set of the first-level cache, rows of 768 numbers 0.4. With AVX-512 (Zen 4), where vectors are whole lines,
0.33 and 0.72, rows of 64 KiB 0.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import math

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.lanes import Flat
from anycann.codegen.vector_loop import EXPENSIVE
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import COSTLY, Expr, Load, Op, Var
from anycann.te.simplify import linear
from anycann.te.traversal import children, walk

_REGISTER_BYTES = 4  # of a lane
_OPERATIONS = 12
MOST_SUMS, _MOST_COLUMNS = 16, 8  # vectors of sums in registers, and of columns at once
_LEAST_ROWS, _LEAST_ROWS_512 = 8, 28  # that are added up; with AVX-512 fewer are written out (nest_stages.py)


def side_by_side(nest: FlatNest, stored: Sequence[DType], vector: Var, lanes: int) -> int:
    """Vectors of `lanes` that the loop over `vector` takes at once; `stored`: the element types of the outputs."""
    if any(stage.over or stage.guards or stage.address is None for stage in nest.stages) or nest.guards:
        return 1
    bodies = walk(*(stage.body for stage in nest.stages))
    loads = [expr for expr in bodies if isinstance(expr, Load)]
    operations = [expr for expr in bodies if isinstance(expr, Op)]
    in_order = all(isinstance(load.tensor, Flat) and linear(load.indices[0]).coefficient(vector) in (0, 1) for load in loads)
    addresses = [linear(stage.address) for stage in nest.stages if stage.address is not None]
    plain = all(isinstance(atom, Var) for form in (*addresses, *(linear(load.indices[0]) for load in loads)) for atom in form.atoms)
    if not in_order or not plain or any(form.coefficient(vector) != 1 for form in addresses):
        return 1
    if len(operations) > _OPERATIONS or any(expr.name in EXPENSIVE for expr in operations):
        return 1
    narrowest = min(dtype.nbytes for dtype in (*stored, *(load.dtype for load in loads)))
    wide = max(1, _REGISTER_BYTES // narrowest)
    return wide if vector.extent >= 2 * wide * lanes else 1


def columns_side_by_side(nest: FlatNest, vector: Var, target: Target) -> int:
    """Vectors that a reduction over rows of float32 takes at once, `vector` running along the rows; 1 for every other nest."""
    reductions = [stage for stage in nest.stages if not stage.is_store]
    if not reductions or nest.guards or not all(_is_plain(stage, vector) for stage in nest.stages):
        return 1
    least = _LEAST_ROWS_512 if target.has("avx512f") else _LEAST_ROWS
    if any(math.prod(v.extent for v in stage.over) < least for stage in reductions):
        return 1
    widths = [wide for wide in (_MOST_COLUMNS, _MOST_COLUMNS // 2, 2) if wide * target.lanes <= vector.extent]
    return min(widths, key=lambda wide: _passes(vector.extent, wide, target.lanes), default=1)


def _is_plain(stage: Stage, vector: Var) -> bool:
    """Whether a stage reduces elements in order with hardly an operation, or stores results in order."""
    computed = list(_computed(stage.body))
    loads = [expr for expr in computed if isinstance(expr, Load)]
    operations = [expr.name for expr in computed if isinstance(expr, Op)]
    read = [linear(load.indices[0]) for load in loads if isinstance(load.tensor, Flat)]
    forms = read if stage.address is None else [*read, linear(stage.address)]
    if stage.guards or stage.keeps or stage.is_store == bool(stage.over) or any(load.dtype is not dtypes.float32 for load in loads):
        return False
    most, too_much = (_OPERATIONS, COSTLY) if stage.is_store else (1, EXPENSIVE)
    if len(operations) > most or "select" in operations or not too_much.isdisjoint(operations):
        return False
    if not all(isinstance(atom, Var) and form.coefficient(vector) in (0, 1) for form in forms for atom in form.atoms):
        return False
    return stage.address is None or linear(stage.address).coefficient(vector) == 1


def _computed(value: Expr) -> Iterator[Expr]:
    """The elements that are read and what is done to them, without the arithmetic of their indices."""
    yield value
    for part in () if isinstance(value, Load) else children(value):
        yield from _computed(part)


def _passes(extent: int, wide: int, lanes: int) -> int:
    """How often the rows are read."""
    return extent // (wide * lanes) + -(-(extent % (wide * lanes)) // lanes)
