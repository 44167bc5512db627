"""A row of taps of a depthwise convolution at once: what is stored as another type is loaded and widened once, for every tap that wants it.

pixel 0 of a tile of three wants inputs 0 1 2 under a row of three taps, pixel 1 wants 1 2 3: five inputs are widened instead of nine.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_columns import TapSpan
from anycann.codegen.kernels.convolution_inputs import Fetch
from anycann.codegen.kernels.convolution_kernel import DirectKernel
from anycann.codegen.kernels.convolution_products import add_product
from anycann.codegen.values import Value

_MOST_PRODUCTS = 256  # written out; more are a loop over the taps


def slides(kernel: DirectKernel, span: TapSpan) -> bool:
    """True if neighbouring pixels of the span share inputs that have to be widened, and its products are few enough to be written out."""
    shape, axis = kernel.shape, kernel.axes[-1]
    widened = shape.dtype is not shape.accumulator and kernel.how == "lanes" and shape.group_inputs == 1
    shared = any(axis.dilation * n % axis.stride == 0 for n in range(1, span.stop_tap - span.first_tap))
    return widened and shared and (span.stop_tap - span.first_tap) * (span.stop_pixel - span.first_pixel) <= _MOST_PRODUCTS


def row_of_taps(e: Emitter, kernel: DirectKernel, span: TapSpan, fetch: Fetch, weights: Value, sums: list[Value]) -> list[Value]:
    """`sums` and all products of a span, by the place of the input; `fetch` and `weights` are those of tap 0."""
    sums, register = list(sums), kernel.shape.accumulator.register
    rows: dict[int, Value] = {}
    for place, tap, pixel in _by_place(kernel, span):
        if tap not in rows:
            rows[tap] = e.load(e.gep(weights, tap * kernel.axes[-1].tap_stride * kernel.lanes, register), kernel.vector, kernel.alignment)
        sums[pixel] = add_product(e, kernel, fetch(0, place), rows[tap], sums[pixel])
    return sums


def _by_place(kernel: DirectKernel, span: TapSpan) -> list[tuple[int, int, int]]:
    """(place of the input, tap, pixel) of every product by place, which is in elements from what pixel 0 reads under tap 0."""
    axis = kernel.axes[-1]
    pixels, taps = range(span.first_pixel, span.stop_pixel), range(span.first_tap, span.stop_tap)
    unit = axis.in_stride * kernel.layout.pixel
    return sorted(((pixel * axis.stride + tap * axis.dilation) * unit, tap, pixel) for pixel in pixels for tap in taps)
