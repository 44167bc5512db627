"""Numbers as they will be when they are quantised: what training with quantisation leaves in a graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.elementwise import elementwise


@operator("FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs")
def _fake_quantise(call: Call) -> Result:
    """Rounded to one of the 2 ** num_bits numbers between min and max, which are moved so that 0 is one of them."""
    if call.node.op.endswith("Args"):
        least, most = np.float32(call.attribute("min", -6.0)), np.float32(call.attribute("max", 6.0))
    else:
        least, most = (np.float32(call.known(number, name)) for number, name in ((1, "min"), (2, "max")))
    low, high = int(bool(call.attribute("narrow_range", False))), 2 ** int(call.attribute("num_bits", 8)) - 1
    scale = (most - least) / np.float32(high - low)
    zero = np.clip(np.floor(np.float32(low) - least / scale + np.float32(0.5)), low, high)
    bottom, top = (float((end - zero) * scale) for end in (low, high))

    def quantised(x: ir.Value) -> ir.Value:
        inside = call.op("Clip", x, call.like(bottom, x), call.like(top, x))
        steps = call.op("Div", call.op("Sub", inside, call.like(bottom, x)), call.like(float(scale), x))
        whole = call.op("Floor", call.op("Add", steps, call.like(0.5, x)))
        return call.op("Add", call.op("Mul", whole, call.like(float(scale), x)), call.like(bottom, x))

    return elementwise(call, quantised, [0])
