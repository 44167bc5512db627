"""LSTM, GRU and RNN layers: the input projection as a matrix product, and the loop over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from anycann.codegen.contract_dot_matmul import generate_dot_matmul, takes_matmul
from anycann.codegen.contract_layouts import check_layouts
from anycann.codegen.contract_matmul import generate_matmul
from anycann.codegen.contract_rounded import generate_rounded, takes_rounded
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.recurrent import Pointers, emit_recurrent, recurrent_scratch_bytes
from anycann.codegen.kernels.recurrent_packing import RecurrentWeights, gate_columns, pack_weights, whole_projection
from anycann.codegen.kernels.recurrent_pairs import multiplies_by_pairs
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile, default_recurrent_tile, parse_activations
from anycann.codegen.kernels.recurrent_steps import emit_recurrent_step, launch_tasks, state_bytes, stepped
from anycann.codegen.kernels.recurrent_tiles import multiplies_by_tiles
from anycann.codegen.kernels.recurrent_words import may_take_words
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated, Packed, memory_name, pack
from anycann.codegen.values import Value
from anycann.support.errors import AnyCANNError
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import MatMul, Recurrent
from anycann.te.dtypes import DType
from anycann.te.tensor import Placeholder

X, W, R, B, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = range(8)


def refuse_recurrent(layer: Recurrent, is_constant: Callable[[str], bool]) -> str | None:
    """Why no kernel computes this layer, or None."""
    for number in (W, R, B, PEEPHOLES):
        tensor = layer.operands[number]
        if tensor is not None and (not isinstance(tensor, Placeholder) or not is_constant(tensor.name)):
            return f"operand {number} of the {layer.kind} is computed at run time"
    for number in (X, INITIAL_H, INITIAL_C):
        tensor = layer.operands[number]
        if tensor is not None and tensor.dtype is not dtypes.float32:
            return f"a {layer.kind} of {tensor.dtype}"
    try:
        recurrent_shape(layer)
    except AnyCANNError as why:
        return str(why)
    return None


def recurrent_shape(layer: Recurrent) -> RecurrentShape:
    """Sizes and attributes of a layer. Raises ModelError or UnsupportedError for activations ONNX does not have."""
    x = layer.operands[X]
    assert x is not None
    steps, batch, inputs = (x.shape[0], x.shape[1], x.shape[2]) if layer.layout == 0 else (x.shape[1], x.shape[0], x.shape[2])
    cell = cast(Literal["LSTM", "GRU", "RNN"], layer.kind)
    directions = 2 if layer.direction == "bidirectional" else 1
    return RecurrentShape(
        cell,
        steps,
        batch,
        inputs,
        layer.hidden,
        cast(Literal["forward", "reverse", "bidirectional"], layer.direction),
        parse_activations(cell, directions, layer.activations, layer.alphas, layer.betas),
        layer.clip,
        layer.layout,
        layer.input_forget,
        layer.linear_before_reset,
        layer.operands[PEEPHOLES] is not None,
        layer.operands[LENGTHS] is not None,
        layer.rounds_states,
    )


def generate_recurrent(
    layers: Mapping[str, Recurrent],
    layouts: Mapping[str, str],
    gates: str,
    target: Target,
    constants: Constants,
    choices: Choices,
) -> tuple[list[Generated], dict[str, int]]:
    """The projection into the workspace `gates` and the loop over time, or its launches, and the bytes of each workspace by name.

    layers: by name of the result. layouts: of the operands by name.
    """
    layer = next(iter(layers.values()))
    check_layouts(layer, layouts, target, choices)
    shape = recurrent_shape(layer)
    x = layer.operands[X]
    in_bfloat = x is not None and x.dtype is dtypes.bfloat16
    by_tiles = in_bfloat and multiplies_by_tiles(shape, target)
    by_pairs = in_bfloat and not by_tiles and multiplies_by_pairs(target)
    shape = replace(shape, rounds_states=shape.rounds_states and not (by_tiles or by_pairs) and may_take_words(target))
    tile = stepped(shape, target, default_recurrent_tile(shape, target, by_tiles, by_pairs))
    parts = [None if (t := layer.operands[n]) is None else np.asarray(constants(memory_name(t)), np.float32) for n in (W, R, B, PEEPHOLES)]
    weights = pack_weights(shape, tile, target.lanes, *parts)  # type: ignore[arg-type]
    rows, columns = shape.steps * shape.batch, gate_columns(shape, tile, target.lanes)
    whole = whole_projection(shape, tile, target.lanes, parts[0]) if layer.rounds_states and parts[0] is not None else None
    projection = _projection(layer, gates, weights, whole, (rows, columns), target, choices)
    e = Emitter()
    arguments: list[str] = []

    def slot(name: str | None) -> Value | None:
        if name is None:
            return None
        arguments.append(name)
        return e.argument(len(arguments) - 1)

    panels = pack("recurrent", weights.panels)
    packed: list[Packed] = [panels]
    by_output = {each.output: name for name, each in layers.items()}
    operands = {n: None if (t := layer.operands[n]) is None else memory_name(t) for n in (LENGTHS, INITIAL_H, INITIAL_C)}
    first, second = slot(gates), slot(panels.name)
    assert first is not None
    assert second is not None
    vectors = None
    if weights.vectors.size:
        packed.append(pack("recurrent", weights.vectors))
        vectors = slot(packed[1].name)
    initial_c, lengths = slot(operands[INITIAL_C]), slot(operands[LENGTHS])
    pointers = Pointers(first, second, vectors, slot(operands[INITIAL_H]), initial_c, lengths, *(slot(by_output.get(n)) for n in range(3)))
    stored, workspaces = dtypes.BY_NAME[weights.panels.dtype.name], {gates: rows * columns * 4}
    if tile.by_steps:
        states = f"{gates}/states"
        launches = _launches(e, shape, target, tile, pointers, stored, (*arguments, states), packed)
        return [projection, *launches], workspaces | {states: state_bytes(shape, target, tile)}
    tasks = emit_recurrent(e, shape, target, tile, pointers, stored)
    symbol, ir = e.finish(layer.kind.lower())
    scratch = recurrent_scratch_bytes(shape, target, tile)
    loop = Generated(Kernel(symbol, ir, tuple(arguments), tasks, scratch, shape.flops), tuple(packed))
    return [projection, loop], workspaces


def _launches(
    e: Emitter,
    shape: RecurrentShape,
    target: Target,
    tile: RecurrentTile,
    pointers: Pointers,
    panels: DType,
    arguments: tuple[str, ...],
    packed: Sequence[Packed],
) -> list[Generated]:
    """Those of a layer by steps, one kernel that is told which it is. arguments: but for that; the last is the memory of the states."""
    states, number = e.argument(len(arguments) - 1), e.argument(len(arguments))
    emit_recurrent_step(e, shape, target, tile, pointers, states, number, panels)
    symbol, ir = e.finish(shape.cell.lower())
    scratch, flops = recurrent_scratch_bytes(shape, target, tile), shape.flops // (shape.steps * len(shape.phases))
    launches = []
    for place, tasks in enumerate(launch_tasks(shape, target, tile)):
        told = pack("launch", np.array([place]))
        kernel = Kernel(symbol, ir, (*arguments, told.name), tasks, scratch, flops if tasks > 1 else 0)
        launches.append(Generated(kernel, (told,) if place else (*packed, told)))
    return launches


def _projection(
    layer: Recurrent,
    gates: str,
    weights: RecurrentWeights,
    whole: tuple[np.ndarray, np.ndarray] | None,
    size: tuple[int, int],
    target: Target,
    choices: Choices,
) -> Generated:
    """gates = X projection + bias, the rows of X in memory order. whole: the projection of a layer whose rows may be rounded to bytes."""
    x = layer.operands[X]
    assert x is not None
    depth = weights.projection.shape[0]
    flat = te.placeholder(memory_name(x), (size[0], depth), x.dtype)
    matrix = te.placeholder(f"{gates}/projection", weights.projection.shape, dtypes.float32)
    bias = pack("bias", weights.bias)
    added = te.placeholder(bias.name, weights.bias.shape, dtypes.float32)
    operator = MatMul(flat, matrix)
    if whole is not None:
        rounding = MatMul(flat, te.table(whole[0]), scale=te.table(whole[1]), scale_rows=depth, rounds_rows=True)
        operator = rounding if takes_rounded(rounding, size, target, choices) else operator
    product = te.contraction(operator, size, dtypes.float32)
    result = te.compute(size, lambda i, j: product[i, j] + added[j])
    outputs = [Output(gates, result)]

    def constant(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
        return weights.projection if name == matrix.name else None

    if operator.rounds_rows:
        generated = generate_rounded(product, operator, outputs, {}, target, constant, Repeats())
    else:
        generate = generate_dot_matmul if takes_matmul(operator, constant, target) else generate_matmul
        generated = generate(product, operator, outputs, {}, target, constant, choices, Repeats())
    return replace(generated, packed=(*generated.packed, bias))
