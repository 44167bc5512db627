"""Running sums and products along an axis: vectors of neighbouring rows, or several rows at once where the axis is the last."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType

CHAINS = 4  # sums that grow at once, since each waits for its last addition
# Vectors of a row at once with 32 registers, where all rows meet in the same sets of the first-level cache, so that fetched lines are gone
# before they are read: 64 rows of 4096 take 0.58 of the time (Zen 4; with AVX2 8 vectors take 1.16). Other rows take 1.08 of it.
_CROWDED_CHAINS, _CROWDED_BYTES = 16, 4096


@dataclass(frozen=True)
class Scan:
    """The problem, the tensor seen as [outer, extent, inner]. kind: "add" or "mul"."""

    outer: int
    extent: int
    inner: int
    kind: str
    exclusive: bool
    reverse: bool
    dtype: DType


def emit_running(e: Emitter, problem: Scan, target: Target, x: Value, y: Value) -> int:
    """Write the loop over tasks; the answer is how many there are."""
    lanes = _lanes(problem, target)
    chunks = -(-problem.inner // lanes)
    chains, together = problem.outer * chunks, _chains(problem, target, chunks)
    tasks = -(-chains // together)
    with e.loop(e.begin, e.end) as task:
        starts = [_start(e, problem, e.add(e.mul(task.index, together), chain), (chains, chunks, lanes)) for chain in range(together)]
        _emit_chains(e, problem, x, y, starts, lanes)
    return tasks


def _lanes(problem: Scan, target: Target) -> int:
    """A power of two that fits into a register and into `inner`."""
    most = max(1, target.lanes * 4 // problem.dtype.nbytes)
    return min(most, 1 << (problem.inner.bit_length() - 1))


def _chains(problem: Scan, target: Target, chunks: int) -> int:
    crowded = problem.inner * problem.dtype.nbytes % _CROWDED_BYTES == 0
    return _CROWDED_CHAINS if crowded and chunks >= _CROWDED_CHAINS and not target.has_few_registers else CHAINS


def _start(e: Emitter, problem: Scan, chain: Value, sizes: tuple[int, int, int]) -> Value:
    """Offset of a chain's first element. What would lie behind the end is moved inside and computed twice, with the same result."""
    chains, chunks, lanes = sizes
    chain = e.smin(chain, e.const(chains - 1))
    column = e.smin(e.mul(e.urem(chain, chunks), lanes), e.const(problem.inner - lanes))
    return e.add(e.mul(e.udiv(chain, chunks), problem.extent * problem.inner), column)


def _emit_chains(e: Emitter, problem: Scan, x: Value, y: Value, starts: list[Value], lanes: int) -> None:
    storage, nbytes = problem.dtype.storage, problem.dtype.nbytes
    type_ = f"<{lanes} x {storage}>" if lanes > 1 else storage
    opcode = f"f{problem.kind}" if problem.dtype.is_float else problem.kind
    neutral = e.const(0 if problem.kind == "add" else 1, type_)
    with e.loop(0, problem.extent, carried=[neutral] * len(starts)) as at:
        step = e.sub(e.const(problem.extent - 1), at.index) if problem.reverse else at.index
        places = [e.add(start, e.mul(step, problem.inner)) for start in starts]
        elements = [e.load(e.gep(x, place, storage), type_, nbytes) for place in places]
        totals = [e.binary(opcode, total, element) for total, element in zip(at.values, elements, strict=True)]
        for place, result in zip(places, at.values if problem.exclusive else totals, strict=True):
            e.store(result, e.gep(y, place, storage), nbytes)
        at.carry(totals)
