"""How a copy that reads along one axis and writes along another is turned in registers: by squares, or by interleaving few vectors."""

from __future__ import annotations

from anycann.codegen.accesses import FlatNest
from anycann.codegen.axes import cut, joined
from anycann.codegen.interleaving import Interleaving, interleaving
from anycann.codegen.transposing import Transposition, transposition
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Turning:
    """The nest, perhaps with other axes than it had, and how it is written."""

    nest: FlatNest
    plan: Transposition | Interleaving


def turning(nest: FlatNest, lanes: int) -> Turning | None:
    """Squares if there are any, else few vectors, else either by other axes; None where vectors lie in order as they are, or never do."""
    if (square := transposition(nest, lanes)) is not None:
        return Turning(nest, square)
    for axes in (nest, cut(nest)):
        if axes is not None and (between := interleaving(axes, lanes)) is not None:
            return Turning(axes, between)
    for axes in joined(nest, lanes // 2):
        if (square := transposition(axes, lanes)) is not None:
            return Turning(axes, square)
    return None
