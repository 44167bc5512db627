"""Pixels of three samples, Y U V or R G B: sorted into planes, and multiplied by a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anycann.codegen.values import Value
from anycann.media.formats import PixelFormat
from anycann.media.picture import View
from anycann.media.row_loops import Buffer, Pixels, RowLoop, run_rows

Samples = NDArray[np.uint8]
COEFFICIENT_BITS = 14


# ---- the loops
def _pick(name: str, step: int, offsets: tuple[int, ...]) -> RowLoop:
    """Of every `step` bytes those at `offsets`."""

    def body(pixels: Pixels) -> None:
        pixels.store(1, [pixels.sample(0, offset, "i16") for offset in offsets])

    return RowLoop(name, (Buffer(step), Buffer(len(offsets))), body)


def _mean(name: str, offsets: tuple[int, int]) -> RowLoop:
    """Of every two pixels in two rows the rounded means of the bytes at `offsets`."""

    def body(pixels: Pixels) -> None:
        e = pixels.e
        means = []
        for offset in offsets:
            a, b, c, d = (pixels.sample(row, place, "i16") for row in (0, 1) for place in (offset, offset + 3))
            total = e.add(e.add(e.add(a, b), e.add(c, d)), pixels.const(2, "i16"))
            means.append(e.binary("lshr", total, pixels.const(2, "i16")))
        pixels.store(2, means)

    return RowLoop(name, (Buffer(6), Buffer(6), Buffer(2)), body)


def _multiplied(pixels: Pixels, samples: Sequence[Value]) -> list[Value]:
    """Sums of the samples (i32) by the numbers of a call: int32[3, 4], in each row three weights and what is added."""
    e = pixels.e
    results = []
    for row in range(3):
        products = [e.mul(sample, pixels.number(4 * row + n, sample)) for n, sample in enumerate(samples)]
        total = e.add(e.add(products[0], products[1]), e.add(products[2], pixels.number(4 * row + 3, products[2])))
        results.append(_limited(pixels, total))
    return results


def _limited(pixels: Pixels, total: Value) -> Value:
    """A sum as a sample."""
    e = pixels.e
    whole = e.binary("ashr", total, pixels.const(COEFFICIENT_BITS, "i32"))
    return e.smin(e.smax(whole, pixels.const(0, "i32")), pixels.const(255, "i32"))


def _multiply_triples(pixels: Pixels) -> None:
    pixels.store(1, _multiplied(pixels, [pixels.sample(0, offset, "i32") for offset in range(3)]))


def _multiply_planes(rows: int, across: int) -> RowLoop:
    """So many rows of brightness that share one of chroma, and as many results.

    What chroma adds is computed once for the pixels that share it; brightness has the same weight in every result, of 16 bits: such
    products are one instruction.
    """

    def body(pixels: Pixels) -> None:
        e = pixels.e
        u, v = (pixels.shared_sample(rows, offset, "i32") for offset in (0, 1))
        colours = []
        for row in (0, 4, 8):
            products = e.mul(u, pixels.number(row + 1, u)), e.mul(v, pixels.number(row + 2, v))
            colours.append(pixels.for_each(rows, e.add(e.add(*products), pixels.number(row + 3, u))))
        for row in range(rows):
            luma = pixels.sample(row, 0, "i32")
            bright = e.mul(luma, e.cast("sext", e.cast("trunc", pixels.number(0, luma), "i16"), "i32"))
            pixels.store(rows + 1 + row, [_limited(pixels, e.add(bright, colour)) for colour in colours])

    buffers = (*[Buffer(1)] * rows, Buffer(2, across - 1), *[Buffer(3)] * rows)
    return RowLoop(f"multiply_planes{rows}", buffers, body, 12, 32)


_FIRST = _pick("pick_first", 3, (0,))
_PAIRS = {1: (_pick("pick_pair", 3, (1, 2)), _pick("pick_swapped", 3, (2, 1))),
          2: (_pick("pick_pair_of_two", 6, (1, 2)), _pick("pick_swapped_of_two", 6, (2, 1)))}  # fmt: skip
_MEANS = (_mean("mean_pair", (1, 2)), _mean("mean_swapped", (2, 1)))
_TRIPLES = RowLoop("multiply", (Buffer(3), Buffer(3)), _multiply_triples, 12)
_PLANES = {(rows, across): _multiply_planes(rows, across) for rows in (1, 2) for across in (1, 2)}


# ---- what they do
def multiply(source: Samples, target: Samples, table: NDArray[np.int32]) -> None:
    """target[y, x, k] = (table[k, :3] . source[y, x] + table[k, 3]) >> 14, limited to 0 and 255. Rows may lie any distance apart.

    `table`: contiguous [3, 4].
    """
    run_rows(_TRIPLES, source.shape[0], source.shape[1], (source, target), table)


def multiply_planes(source: View, target: Samples, table: NDArray[np.int32]) -> None:
    """As `multiply`, of a semi-planar picture; the columns of the table go with Y and the samples of the chroma plane in their order.

    The first column has the same weight in every row, as Y has in R, G and B.
    """
    luma, chroma = source.planes
    down, across = source.format.down, source.format.across
    whole = len(luma) // down  # an odd last row has chroma of its own
    if whole:
        pairs = [plane[first::down] for plane in (luma, target) for first in range(down)]
        run_rows(_PLANES[down, across], whole, luma.shape[1], (*pairs[:down], chroma, *pairs[down:]), table)
    if len(luma) > whole * down:
        run_rows(_PLANES[1, across], 1, luma.shape[1], (luma[-1:], chroma[whole:], target[-1:]), table)


def split(pixels: Samples, target: View, across: int, down: int) -> None:
    """Write [rows, columns, Y U V] to `target`, gray or semi-planar. Chroma was stored for `across` x `down` pixels, and is alike in them.

    Where `target` has as much chroma, it is as it was stored; where it has less (420), the mean of two by two pixels, the last one of an
    odd edge counted twice.
    """
    luma, *chroma = target.planes
    run_rows(_FIRST, pixels.shape[0], pixels.shape[1], (pixels, luma))
    if chroma and (across, down) == (target.format.across, target.format.down):
        _pick_chroma(pixels, chroma[0], target.format)
    elif chroma:
        _mean_chroma(pixels, chroma[0], target.format)


def _pick_chroma(pixels: Samples, chroma: Samples, form: PixelFormat) -> None:
    """The chroma of the first pixel of those that share it."""
    swapped = form.order == "YVU"
    rows, columns, _ = chroma.shape
    whole = pixels.shape[1] // form.across  # an odd width: the last pixel has a chroma sample of its own
    run_rows(_PAIRS[form.across][swapped], rows, min(whole, columns), (pixels[:: form.down], chroma))
    if whole < columns:
        chroma[:, -1] = pixels[:: form.down, -1, 2:0:-1] if swapped else pixels[:: form.down, -1, 1:]


def _mean_chroma(pixels: Samples, chroma: Samples, form: PixelFormat) -> None:
    """Chroma of 420 from what was stored with more: the mean of two by two pixels; at an odd edge the last one counts twice."""
    mean = _MEANS[form.order == "YVU"]
    height, width, _ = pixels.shape
    run_rows(mean, height // 2, width // 2, (pixels[0::2], pixels[1::2], chroma))
    if height % 2:
        run_rows(mean, 1, width // 2, (pixels[-1:], pixels[-1:], chroma[height // 2 :]))
    if width % 2 and chroma.shape[1] > width // 2:
        edge = pixels[:, -1, 2:0:-1] if form.order == "YVU" else pixels[:, -1, 1:]
        chroma[:, -1] = mean_of_pairs(edge)


def mean_of_pairs(edge: Samples) -> Samples:
    """Rounded means of each two along the first axis; the last of an odd number is its own neighbour."""
    upper = edge[::2].astype(np.uint16)
    lower = np.concatenate([edge[1::2], edge[-1:]])[: len(upper)]
    means: Samples = ((upper + lower + 1) // 2).astype(np.uint8)
    return means
