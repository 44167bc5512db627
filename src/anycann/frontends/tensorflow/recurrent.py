"""Steps of recurrent networks that TensorFlow keeps as one operator."""

from __future__ import annotations

import onnx_ir as ir

from anycann.frontends.tensorflow.definition import Call, Result, operator


@operator("LSTMBlockCell")
def _lstm_block_cell(call: Call) -> Result:
    """Operands x, cs_prev, h_prev, w, wci, wcf, wco, b; results i, cs, f, o, ci, co, h. Gates lie in w as i, c, f, o."""
    x, before, h_before, weight, *peepholes, bias = (call.value(number) for number in range(8))
    rows = call.op("MatMul", call.op("Concat", x, h_before, axis=1), weight)
    i, c, f, o = call.ops("Split", call.op("Add", rows, bias), outputs=4, axis=1, num_outputs=4)
    f = call.op("Add", f, call.like(float(call.attribute("forget_bias", 1.0)), f))
    peeps = bool(call.attribute("use_peephole", False))
    i, f = (call.op("Sigmoid", _with_peephole(call, gate, before, row, peeps)) for gate, row in ((i, peepholes[0]), (f, peepholes[1])))
    c = call.op("Tanh", c)
    state = call.op("Add", call.op("Mul", c, i), call.op("Mul", before, f))
    clip = float(call.attribute("cell_clip", 3.0))
    if clip > 0:
        state = call.op("Clip", state, call.like(-clip, state), call.like(clip, state))
    o = call.op("Sigmoid", _with_peephole(call, o, state, peepholes[2], peeps))
    shown = call.op("Tanh", state)
    return [i, state, f, o, c, shown, call.op("Mul", shown, o)]


def _with_peephole(call: Call, gate: ir.Value, state: ir.Value, weights: ir.Value, is_used: bool) -> ir.Value:
    return call.op("Add", gate, call.op("Mul", state, weights)) if is_used else gate
