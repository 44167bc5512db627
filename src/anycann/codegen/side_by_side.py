"""How many vectors a loop takes at once where elements are narrower than float32.

A vector of lanes holds as many bytes or halves as it holds float32, a quarter or half of a register. Four of them are loaded, packed and
stored as one. Only where nothing but a few operations is done to an element: more would not stay in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.accesses import FlatNest
from anycann.codegen.lanes import Flat
from anycann.codegen.vector_loop import EXPENSIVE
from anycann.te.dtypes import DType
from anycann.te.expression import Load, Op, Var
from anycann.te.simplify import linear
from anycann.te.traversal import walk

_REGISTER_BYTES = 4  # of a lane
_OPERATIONS = 12


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
