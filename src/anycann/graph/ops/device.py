"""Operators of the device itself, in the domain `anycann`."""

from __future__ import annotations

from anycann.graph.ops.common import elementwise, floats
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te.tensor import Tensor

DOMAIN = "anycann"


@operator(
    "TransData",
    domain=DOMAIN,
    samples=lambda rng: [Sample((floats(rng, 2, 19, 3, 5),))],
    infer=lambda node, inputs: [t for t in inputs if t is not None],
    reference=lambda x: x.copy(),
)
def trans_data(context: Lowering) -> Tensor:
    """The same tensor in another buffer, and there perhaps in another layout."""
    return elementwise(context, lambda a: a, context.operand(0))
