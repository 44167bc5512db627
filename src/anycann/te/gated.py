"""Products with a function of one of their factors that have a function of their own: x sigmoid(x) -> silu(x), the factors in any order."""

from __future__ import annotations

from anycann.te import dtypes
from anycann.te.expression import Op


def gated(expr: Op) -> Op:
    """The same by fewer instructions, or `expr`."""
    if expr.name != "mul" or expr.dtype not in (dtypes.float32, dtypes.float64):
        return expr
    a, b = expr.operands
    for x, gate in ((a, b), (b, a)):
        if isinstance(gate, Op) and gate.name == "sigmoid" and gate.operands[0] is x:
            return Op("silu", (x,), expr.dtype)
    return expr
