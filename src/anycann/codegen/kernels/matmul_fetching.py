"""Where the panels of a matrix product come from in time: rows of this panel from the second-level cache, the next one from memory."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_kernel import Panel, PanelKernel
from anycann.codegen.kernels.matmul_writer import MatmulIndex
from anycann.codegen.values import Value

# How far ahead of the products a panel is fetched; measured from 1 to 8 KiB with panels that fill the second-level cache. Rows of a B in
# place are other pages, which takes as long to find: [10, 325] x [325, 2897] takes 0.7 of the time with 8 to 32 rows ahead, [300, 500] x
# [500, 250] 0.94; one that the first-level cache holds has no need of it.
_PREFETCH_BYTES, _PREFETCH_ROWS, _LINE_BYTES, _NEAR_BYTES = 4096, 16, 64, 48 << 10


def prefetch_rows(e: Emitter, kernel: PanelKernel, panel: Panel, row_of_b: Value) -> None:
    """Fetch as many bytes of a panel as a row has, some rows ahead: it lies in the second-level cache, whose own guesses come late."""
    shape, dtype = kernel.shape, kernel.right.dtype
    ahead, columns = _PREFETCH_BYTES, kernel.width
    if not (shape.packed or kernel.tile.copy):
        if shape.k * shape.n * dtype.nbytes <= _NEAR_BYTES:
            return
        ahead, columns = _PREFETCH_ROWS * shape.b.row * dtype.nbytes, panel.vectors * kernel.lanes
    elif columns * dtype.nbytes < _LINE_BYTES or not kernel.soon:
        return
    for line in range(0, columns * dtype.nbytes, _LINE_BYTES):
        e.prefetch(e.gep(row_of_b, ahead + line, "i8"))


# A panel that one register tile reads is used for so short a time that fetching parts of a large next one delays it: [4, 3072] x
# [3072, 768] takes 0.94 of the time without, on two threads 0.84; with k = 768 fetching still gains.
_MOST_LATER_BYTES = 1 << 19


def fetches_later(kernel: PanelKernel) -> bool:
    """True if the next panel is fetched while one is used."""
    nbytes = kernel.shape.k * kernel.width * kernel.right.dtype.nbytes
    return kernel.shape.packed and not kernel.shape.scale_rows and (kernel.heights.count > 1 or nbytes <= _MOST_LATER_BYTES)


def later_part(
    e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, rows_of_b: Value, count: Value, following: Value | None = None
) -> Value:
    """The part of the next panel that is fetched while this register tile is computed: all tiles of a panel fetch all of the next.

    So the weights of a layer come from memory while the processor multiplies, not while the first tile of a panel waits for them.
    following: where the next panel begins, if not behind this one.
    """
    panel_bytes = kernel.shape.k * kernel.width * kernel.right.dtype.nbytes
    number = e.sub(tile, panel.tile) if kernel.tile.panels_inner else tile
    part = e.mul(number, _later_bytes(kernel))
    return e.gep(following or e.gep(rows_of_b, panel_bytes, "i8"), e.mul(part, count), "i8")


def fetch_later(e: Emitter, kernel: PanelKernel, later: Value, k: Value) -> None:
    """Fetch what falls to one turn of the innermost loop, from `k` on: line by line, of what each k has more of its first line."""
    nbytes = _later_bytes(kernel)
    start = e.gep(later, e.mul(k, nbytes), "i8")
    for place in range(0, kernel.unroll * nbytes, max(_LINE_BYTES, nbytes)):
        e.prefetch(e.gep(start, place, "i8"), level=2)


# Products of fewer k are over before what they ask for is there. The residual of [256, 768] x [768, 768], which other layers have driven
# from the second-level cache: 0.96 of the time, of 197 rows 0.99 (`python -m benchmarks.shares`).
_LEAST_FETCHING_K = 128


def fetch_read(e: Emitter, kernel: PanelKernel, panel: Panel, m: Value, rows: int) -> None:
    """Ask for what the writer reads of `rows` rows from `m` on beside the sums: it comes while these are computed."""
    if kernel.fetch is None or kernel.shape.k < _LEAST_FETCHING_K:
        return
    for i in range(rows):
        for column in range(0, panel.vectors * kernel.lanes, max(kernel.lanes, _LINE_BYTES // kernel.shape.accumulator.nbytes)):
            kernel.fetch(e, MatmulIndex(panel.batch, e.add(m, i), e.add(panel.n, column)))


def _later_bytes(kernel: PanelKernel) -> int:
    """Bytes of the next panel that a tile fetches for each k: those of a task are followed by the next panel, or by more of this one."""
    tiles = kernel.tile.row_blocks if kernel.tile.panels_inner else kernel.heights.count
    return -(-kernel.width * kernel.right.dtype.nbytes // tiles)
