"""Where Strassen's algorithm finds the rows of A: one after the other along k, or as pixels of images in blocks of channels."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.strassen_tile import StrassenSizes
from anycann.codegen.values import Value
from anycann.support.records import dataclass


@dataclass(frozen=True)
class RowOrder:
    """Elements from one row to the next, and from one sample to the next; `together` neighbours of k lie side by side, the next `apart`.

    together: 0 where all of k lies side by side.
    """

    row: int
    sample: int = 0
    together: int = 0
    apart: int = 0

    def of_whole(self, k: int) -> int:
        """Elements to the `k`-th column, the first of its neighbours."""
        return k // self.together * self.apart if self.together else k

    def of(self, e: Emitter, k: Value) -> Value:
        """Elements to the `k`-th column."""
        if not self.together:
            return k
        return e.add(e.mul(e.udiv(k, self.together), self.apart), e.urem(k, self.together))


def of_product(sizes: StrassenSizes) -> RowOrder:
    """Rows along k."""
    row = sizes.shape.a.row
    return RowOrder(row, row * sizes.sample_rows)


def of_images(sizes: StrassenSizes) -> RowOrder:
    """Images in NC1HWC0, whose pixels are the rows."""
    block = sizes.sample_rows * sizes.lanes
    return RowOrder(sizes.lanes, sizes.shape.k // sizes.lanes * block, sizes.lanes, block)
