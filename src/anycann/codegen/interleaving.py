"""Copies whose last axis is short and which read along the one before: the vectors of its places are interleaved in registers.

y[i, j] = x[j, i], j < 3:   load a vector of x[j, i0 ...] for each j,
                            pick three vectors of y[i0 ...] out of them, store these
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anycann.codegen.accesses import FlatNest, Stage, walk_outside_addresses
from anycann.codegen.axes import divided, flat_loads, is_copy
from anycann.codegen.nest_writer import NestWriter
from anycann.codegen.stores import address_of, stored_value
from anycann.codegen.strided import STRIDES, pick
from anycann.codegen.transposing import LARGEST_BODY
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType
from anycann.te.expression import Var
from anycann.te.simplify import linear


@dataclass(frozen=True)
class Interleaving:
    """The store runs along `places`, all of them, and then along `read`, which the loads run along; both are outer loops."""

    read: Var
    places: Var


def interleaving(nest: FlatNest, lanes: int) -> Interleaving | None:
    """How to interleave the vectors of this nest; None if it has another form, or as many places as make squares (`transposing.py`)."""
    stage = nest.stages[0]
    if not is_copy(nest) or stage.address is None or len(walk_outside_addresses(stage.body)) > LARGEST_BODY:
        return None
    form = linear(stage.address)
    places = next((v for v in nest.outer if form.coefficient(v) == 1), None)
    if places is None or not 1 < places.extent < lanes // 2 or any(not isinstance(atom, Var) for atom in form.atoms):
        return None
    read = next((v for v in nest.outer if form.coefficient(v) == places.extent and v.extent >= lanes), None)
    return Interleaving(read, places) if read is not None and _reads_along(stage, read) else None


def _reads_along(stage: Stage, read: Var) -> bool:
    """True if vectors along `read` are loaded in order, or picked out of some that are."""
    forms = [linear(load.indices[0]) for load in flat_loads(stage)]
    steps = {form.coefficient(read) for form in forms}
    return 1 in steps and steps <= {0, 1, *STRIDES} and not any(divided(form, read) for form in forms)


class InterleavingWriter(NestWriter):
    """Writes such a nest: at each point of the other loops, vectors along `read` for all places."""

    def __init__(self, nest: FlatNest, dtypes_: Sequence[DType], target: Target, plan: Interleaving):
        super().__init__(nest, dtypes_, target, plan.read)
        self.places = plan.places

    def task_loops(self) -> list[Var]:
        """All loops but the two that are written along."""
        return [v for v in super().task_loops() if v is not self.places]

    def stages(self, lanes: int, mask: Value | None, known: Mapping[int, Value] | None = None) -> None:
        """All places of `lanes` points of `read`, or of those that the mask, which is of the last ones, has."""
        (stage,), (dtype,), extent = self.nest.stages, self.dtypes, self.places.extent
        assert self.vector is not None
        vectors = list[Value]()
        for place in range(extent):
            self.values[self.places] = self.e.const(place)
            here = self._lanes(lanes, self.vector, {}, mask, stage)
            vectors.append(stored_value(here, stage, dtype))
        self.values[self.places] = self.e.const(0)
        first = address_of(self._lanes(lanes, self.vector, {}, None, stage), stage, self.stores[stage.output], dtype)
        count = extent * (lanes if mask is None else self.vector.extent % lanes)
        for start in range(0, count, lanes):
            self._store_vector(self._interleaved(vectors, start), self.e.gep(first, start, dtype.storage), dtype, count - start)

    def _interleaved(self, vectors: Sequence[Value], start: int) -> Value:
        """As many elements as a vector has, from element `start` of the vectors' first elements, their second ones, and so on."""
        lanes, picked = vectors[0].lanes, None
        points = [divmod(start + lane, len(vectors)) for lane in range(lanes)]
        for number, vector in enumerate(vectors):
            picked = pick(self.e, picked, vector, [point if place == number else None for point, place in points])
        assert picked is not None
        return picked

    def _store_vector(self, value: Value, address: Value, dtype: DType, left: int) -> None:
        if left >= value.lanes:
            self.e.store(value, address, dtype.nbytes)
        else:
            self.e.masked_store(value, address, dtype.nbytes, self._tail_mask(left))
