"""LSTM, GRU and RNN: every result of the node is an output of one recurrent kernel."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anycann.graph.ops.common import floats
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Recurrent
from anycann.te.tensor import Tensor

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _samples(kind: str) -> Iterable[Sample]:
    rng = np.random.default_rng(7)
    for steps, batch, inputs, hidden, direction in ((3, 2, 5, 7, "forward"), (4, 1, 3, 20, "reverse"), (5, 3, 8, 16, "bidirectional")):
        directions, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
        w = floats(rng, directions, gates * hidden, inputs, low=-1, high=1)
        r = floats(rng, directions, gates * hidden, hidden, low=-0.5, high=0.5)
        b = floats(rng, directions, 2 * gates * hidden, low=-1, high=1)
        yield Sample((floats(rng, steps, batch, inputs), w, r, b), {"hidden_size": hidden, "direction": direction}, (1, 2, 3), 2)


def _define(kind: str) -> None:
    @operator(kind, samples=lambda rng: _samples(kind))
    def lower(context: Lowering) -> list[Tensor]:
        """One contraction per output; the weights are packed when the kernel is generated."""
        if context.operand(0).rank != 3:
            raise NotLowered(f"X has rank {context.operand(0).rank}")
        operands = tuple(context.operand(n) if context.has(n) else None for n in range(8))
        lengths = operands[4]
        if lengths is not None and lengths.dtype is not dtypes.int32:
            raise NotLowered(f"sequence lengths of {lengths.dtype}")
        clip = context.attribute("clip")
        stated = context.node.attributes.get("activations")  # the schema of RNN has a default for two directions, whatever is asked for
        words = () if stated is None else stated.as_strings()
        layers = [
            Recurrent(
                kind,
                operands,
                context.integer("hidden_size") or operands[2].shape[-1],  # type: ignore[union-attr]
                output,
                context.text("direction", "forward"),
                tuple(words),
                tuple(context.attribute("activation_alpha") or ()),  # type: ignore[arg-type]
                tuple(context.attribute("activation_beta") or ()),  # type: ignore[arg-type]
                None if clip is None else float(clip),  # type: ignore[arg-type]
                context.integer("layout"),
                bool(context.integer("input_forget")),
                bool(context.integer("linear_before_reset")),
                "rounds_states" in context.node.metadata_props,  # by passes/rules/dequantize_lstm.py
            )
            for output in range(len(context.outputs))
        ]
        return [te.contraction(layer, type_.shape, dtypes.float32) for layer, type_ in zip(layers, context.outputs, strict=True)]


for _kind in GATES:
    _define(_kind)
