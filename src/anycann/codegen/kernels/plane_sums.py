"""Elements added up by place, plane by plane: each task makes some planes zero and adds to them, in order."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import addition
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType

_TASK_ELEMENTS, _MOST_TASKS = 1 << 13, 64


@dataclass(frozen=True)
class PlaneSumsProblem:
    """Each of `planes` planes of `size` elements gets `count` updates, whose places in it (int64) lie beside them."""

    planes: int
    size: int
    count: int
    dtype: DType

    @property
    def planes_of_a_task(self) -> int:
        """Planes that a task has."""
        enough = max(1, _TASK_ELEMENTS // max(1, self.size + self.count))
        return max(enough, -(-self.planes // _MOST_TASKS))


def emit_plane_sums(e: Emitter, problem: PlaneSumsProblem, target: Target, places: Value, updates: Value, result: Value) -> int:
    """Write the loop over tasks; returns how many there are. A place that is not in the plane goes nowhere."""
    own, storage, nbytes = problem.planes_of_a_task, problem.dtype.storage, problem.dtype.nbytes
    lanes = max(1, target.lanes * 4 // nbytes)
    whole = problem.size - problem.size % lanes
    with e.loop(e.begin, e.end) as task:
        first = e.mul(task.index, own)
        with e.loop(first, e.smin(e.add(first, own), e.const(problem.planes))) as plane:
            to = e.gep(result, e.mul(plane.index, problem.size), storage)
            for start, stop, width in ((0, whole, lanes), (whole, problem.size, 1)):
                with e.loop(start, stop, width) as at:
                    e.store(e.zero(vector_type(storage, width)), e.gep(to, at.index, storage), nbytes)
            source = e.mul(plane.index, problem.count)
            with e.loop(0, problem.count) as update:
                number = e.add(source, update.index)
                place = e.load(e.gep(places, number, "i64"), "i64", 8)
                with e.when(e.compare("ult", place, e.const(problem.size))):
                    there = e.gep(to, place, storage)
                    old, new = e.load(there, storage, nbytes), e.load(e.gep(updates, number, storage), storage, nbytes)
                    e.store(e.binary(addition(old), old, new), there, nbytes)
    return -(-problem.planes // own)
