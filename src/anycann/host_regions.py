"""Regions behind a list whose length only running tells: the host computes them, until a program for their sizes is worth compiling.

A detector finds another number of boxes in every picture, and few nodes come after that. Compiling them takes a tenth of a second or more,
numpy a tenth of a millisecond. No compiler is needed for it, nor imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import threading
from typing import TypeAlias

import onnx_ir as ir

from anycann.graph.host_operators import HOST_TYPES, QUICK_ON_HOST
from anycann.om.plan import TensorSpec
from anycann.passes.precision import KEEP_TYPES, storage_of
from anycann.runtime.open_program import HostNode, OpenProgram, Sized
from anycann.runtime.open_sizes import OpenSizes

MOST_CONSTANT_BYTES = 16 << 20  # of a region: those of an offline model are unpacked for the host, and stay packed for kernels

Load: TypeAlias = Callable[[str], ir.Model]


class HostRegions:
    """The regions of one model; `load` gives one by its name, as a graph that is not changed. Safe to use from several threads.

    precision_mode: "" keeps the model's types, as some others do; where it does not, everything is compiled.
    """

    def __init__(self, load: Load, precision_mode: str = ""):
        self._load = load
        self._keeps_types = storage_of(precision_mode or KEEP_TYPES) is None
        self._sizes: dict[str, OpenSizes | None] = {}
        self._lock = threading.Lock()

    def run(self, region: str, specs: tuple[TensorSpec, ...], values: Sequence[object]) -> list[object] | None:
        """The outputs for these inputs, arrays of their own; None where the region is better compiled for them."""
        sizes = self._decider(region)
        return None if sizes is None else sizes.run(specs, values)

    def compiled(self, region: str, specs: tuple[TensorSpec, ...], seconds: float) -> None:
        """A program for these inputs was made in that time."""
        sizes = self._sizes.get(region)
        if sizes is not None:
            sizes.compiled(specs, seconds)

    def _decider(self, region: str) -> OpenSizes | None:
        """What decides about a region; None for one that is always compiled."""
        with self._lock:
            if region not in self._sizes:
                program = host_program(self._load(region)) if self._keeps_types else None
                self._sizes[region] = None if program is None else OpenSizes(program)
            return self._sizes[region]


def host_program(model: ir.Model) -> OpenProgram | None:
    """A program of the host for a graph with inputs of any sizes; None where numpy is no way for one of its nodes."""
    graph = model.graph
    if any(node.domain or node.op_type not in QUICK_ON_HOST for node in graph):
        return None
    tensors = {name: value.const_value for name, value in graph.initializers.items() if value.const_value is not None}
    if sum(tensor.nbytes for tensor in tensors.values()) > MOST_CONSTANT_BYTES:
        return None
    constants = {name: tensor.numpy() for name, tensor in tensors.items()}
    types = [None if value.dtype is None else value.dtype.numpy() for value in graph.outputs]
    if any(dtype is None or dtype.name not in HOST_TYPES for dtype in (*types, *(array.dtype for array in constants.values()))):
        return None
    from anycann.graph.bounded_node import BoundedNode  # imports ONNX's reference

    opset = graph.opset_imports[""]
    protos = [ir.to_proto(node) for node in graph]
    nodes = tuple(HostNode(BoundedNode(node, opset), tuple(node.input), tuple(node.output)) for node in protos)
    inputs, outputs = (tuple(value.name or "" for value in values) for values in (graph.inputs, graph.outputs))
    checked = {name: Sized(dtype) for name, dtype in zip(outputs, types, strict=True) if dtype is not None}
    return OpenProgram([nodes], constants, checked, inputs, outputs)
