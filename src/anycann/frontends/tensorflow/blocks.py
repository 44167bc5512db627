"""Blocks of spatial axes that go to the batch and come back (dilated convolutions are written so)."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.definition import HUGE, Call, Result, operator


@operator("SpaceToBatchND SpaceToBatch")
def _space_to_batch(call: Call) -> Result:
    """Every place within a block gives a picture; all pictures of the first place come first in the new batch."""
    block, edges = _block(call), call.known(2 if call.node.op.endswith("ND") else 1, "paddings")
    pads = np.zeros((call.rank(0), 2), np.int64)
    pads[1 : 1 + len(block)] = edges
    padded = call.op("Pad", call.value(0), call.constant(pads.T.reshape(-1)), None)
    axes = call.constant(list(range(1, 1 + len(block))), np.int64)
    ends, steps = call.constant([HUGE] * len(block), np.int64), call.constant(block, np.int64)
    parts = [call.op("Slice", padded, call.constant(list(place), np.int64), ends, axes, steps) for place in product(*map(range, block))]
    return call.op("Concat", *parts, axis=0)


@operator("BatchToSpaceND BatchToSpace")
def _batch_to_space(call: Call) -> Result:
    """The other way round, and what `crops` says is cut away."""
    block, edges = _block(call), call.known(2 if call.node.op.endswith("ND") else 1, "crops")
    count = int(np.prod(block))
    parts = call.ops("Split", call.value(0), outputs=count, axis=0, num_outputs=count)
    for axis in reversed(range(len(block))):
        size = block[axis]
        parts = [_woven(call, parts[at : at + size], axis + 1) for at in range(0, len(parts), size)]
    starts, ends = call.constant(edges[:, 0], np.int64), call.constant([-int(n) if n else HUGE for n in edges[:, 1]], np.int64)
    return call.op("Slice", parts[0], starts, ends, call.constant(list(range(1, 1 + len(block))), np.int64))


def _block(call: Call) -> list[int]:
    if not call.node.op.endswith("ND"):
        return [int(call.attribute("block_size", 2))] * 2
    return [int(size) for size in call.known(1, "block_shape")]


def _woven(call: Call, parts: list[ir.Value], axis: int) -> ir.Value:
    """Row k of the result is row k // count of part k % count."""
    beside = call.constant([axis + 1], np.int64)
    stacked = call.op("Concat", *(call.op("Unsqueeze", part, beside) for part in parts), axis=axis + 1)
    factors = np.ones(call.rank(0), np.int64)
    factors[axis] = len(parts)
    return call.op("Reshape", stacked, call.op("Mul", call.sizes(parts[0]), call.constant(factors)))
