"""Numpy meanings of operators outside the ONNX standard, as met in exported models: naive on purpose, kernels are checked against them."""

from __future__ import annotations

from functools import cache

from onnx.reference.op_run import OpRun

from anycann.graph.reference import (
    activations,
    attention,
    control,
    convolution,
    dynamic_quantized,
    embedding,
    grouped_attention,
    machine_learning,
    matmul,
    miscellaneous,
    normalization,
    pooling,
    quantization_networks,
    quantized,
    recurrent,
    rotary,
    scatter,
)

FAMILIES = (
    activations,
    attention,
    control,
    convolution,
    dynamic_quantized,
    embedding,
    grouped_attention,
    machine_learning,
    matmul,
    miscellaneous,
    normalization,
    pooling,
    quantization_networks,
    quantized,
    recurrent,
    rotary,
    scatter,
)

MODULES = frozenset(family.__name__ for family in FAMILIES)


@cache
def operators() -> tuple[type[OpRun], ...]:
    """Every operator class of this folder; `op_domain` and the class name say which operator it means."""
    classes = [item for family in FAMILIES for item in vars(family).values() if isinstance(item, type) and issubclass(item, OpRun)]
    own = [item for item in classes if item.__module__ in MODULES and not item.__name__.startswith("_")]
    return tuple(dict.fromkeys([*own, *quantization_networks.OPERATORS]))
