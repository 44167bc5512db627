"""Routines of te/routines.py: the kernel of each, with its operands and results as arguments."""

from __future__ import annotations

from collections.abc import Mapping

from anycann.codegen.contract_layouts import check_layouts
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.attention_gradient import AttentionGradientShape, Tensors, emit_attention_gradient, gradient_scratch
from anycann.codegen.kernels.places import PlacesProblem, emit_places
from anycann.codegen.kernels.plane_sums import PlaneSumsProblem, emit_plane_sums
from anycann.codegen.kernels.row_sums import RowSumsProblem, emit_row_sums
from anycann.codegen.kernels.running import Scan, emit_running
from anycann.codegen.kernels.scatter import ScatterPointers, ScatterProblem, emit_scatter
from anycann.codegen.kernels.suppression import SuppressionProblem, emit_suppression
from anycann.codegen.kernels.top_k import TopK, emit_top_k
from anycann.codegen.kernels.top_k_rows import emit_top_k_of_rows, takes_rows
from anycann.codegen.kernels.trees import TreePointers, TreesProblem, emit_trees, scratch_bytes
from anycann.codegen.space import Choices
from anycann.codegen.tail import Generated, memory_name
from anycann.codegen.values import Value
from anycann.support.errors import InternalError
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.routines import AttentionGradient, Places, PlaneSums, Routine, RowSums, Running, Scatter, Selection, Suppression, Trees
from anycann.te.tensor import Placeholder

HALVES = (dtypes.float16, dtypes.bfloat16)  # arithmetic in these is not native


def refuse_routine(routine: Routine) -> str | None:
    """Why no kernel computes this, or None."""
    if any(not isinstance(operand, Placeholder) for operand in routine.operands()):
        return "an operand is a single known number"
    if isinstance(routine, Selection):
        return "a selection of truth values" if routine.x.dtype is dtypes.bool_ else None
    if isinstance(routine, Running):
        return f"a running sum of {routine.x.dtype}" if routine.x.dtype in (*HALVES, dtypes.bool_) else None
    if isinstance(routine, Suppression | Places | RowSums | PlaneSums | AttentionGradient | Trees):
        return None
    assert isinstance(routine, Scatter)
    if routine.kind != "none" and routine.data.dtype in (*HALVES, dtypes.bool_):
        return f"updates of {routine.data.dtype} that are combined"
    return None


def generate_routine(routines: Mapping[str, Routine], layouts: Mapping[str, str], target: Target) -> Generated:
    """The kernel of one node's results, by name of the result. `layouts`: of the operands by name."""
    first = next(iter(routines.values()))
    check_layouts(first, layouts, target, Choices())
    e = Emitter()
    arguments = [*(memory_name(operand) for operand in first.operands()), *routines]
    slots = [e.argument(number) for number in range(len(arguments))]
    operands = slots[: len(first.operands())]
    results: dict[int, Value] = {each.output: slot for each, slot in zip(routines.values(), slots[len(operands) :], strict=True)}
    tasks, scratch = _emit(e, first, target, operands, results)
    symbol, ir = e.finish(type(first).__name__.lower())
    return Generated(Kernel(symbol, ir, tuple(arguments), tasks, scratch))


def _emit(e: Emitter, routine: Routine, target: Target, operands: list[Value], results: Mapping[int, Value]) -> tuple[int, int]:
    """(tasks, bytes of scratch memory)."""
    if isinstance(routine, Selection):
        problem = TopK(routine.outer, routine.extent, routine.inner, routine.count, routine.largest, routine.x.dtype)
        if takes_rows(problem, target.lanes):
            return emit_top_k_of_rows(e, problem, target, operands[0], results.get(0), results.get(1)), 0
        return emit_top_k(e, problem, target, operands[0], results.get(0), results.get(1)), problem.scratch_bytes
    if isinstance(routine, Running):
        size = (routine.outer, routine.extent, routine.inner)
        return emit_running(
            e, Scan(*size, routine.kind, routine.exclusive, routine.reverse, routine.x.dtype), target, operands[0], results[0]
        ), 0
    if isinstance(routine, Scatter):
        shapes = (routine.data.shape, routine.places.shape)
        scatter = ScatterProblem(*shapes, routine.axis, routine.kind, routine.data.dtype, routine.places.dtype)
        return emit_scatter(e, scatter, target, ScatterPointers(operands[0], operands[1], operands[2], results[0])), 0
    if isinstance(routine, AttentionGradient):
        batch, heads, rows, depth = routine.query.shape
        keys, width = routine.value.shape[2:]
        attention = AttentionGradientShape(batch, heads, rows, keys, depth, width, routine.scale, routine.causal, routine.mask_steps)
        mask = operands[4] if routine.mask is not None else None
        dy, query, key, value = operands[:4]
        tensors = Tensors(dy, query, key, value, mask, results.get(0), results.get(1), results.get(2))
        return emit_attention_gradient(e, attention, target, tensors), gradient_scratch(attention, target)
    if isinstance(routine, PlaneSums):
        planes = PlaneSumsProblem(routine.planes, routine.size, routine.count, routine.updates.dtype)
        return emit_plane_sums(e, planes, target, operands[0], operands[1], results[0]), 0
    if isinstance(routine, RowSums):
        sums = RowSumsProblem(routine.rows, routine.size, routine.count, routine.skipped, routine.updates.dtype, routine.places.dtype)
        return emit_row_sums(e, sums, target, operands[0], operands[1], results[0]), 0
    if isinstance(routine, Places):
        return emit_places(e, PlacesProblem(routine.x.shape, routine.x.dtype), operands[0], results[0], results[1]), 0
    if isinstance(routine, Suppression):
        batch, classes, boxes = routine.scores.shape
        suppression = SuppressionProblem(batch, classes, boxes, routine.count, routine.overlap, routine.least, routine.centred)
        return emit_suppression(e, suppression, target, operands[0], operands[1], results[0]), suppression.scratch_bytes(target.lanes)
    if isinstance(routine, Trees):
        (rows, features), width = routine.x.shape, routine.tables[-1].shape[-1]
        trees = TreesProblem(rows, features, routine.target_count, routine.count, width, routine.missing)
        return emit_trees(e, trees, target, TreePointers(*operands), results[0]), scratch_bytes(target)
    raise InternalError(f"no kernel for {type(routine).__name__}")
