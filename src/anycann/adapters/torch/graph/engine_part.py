"""A part of a graph that the engine computes: compiled, and run on the memory of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from anycann.adapters.torch.device.aliasing import host_alias
from anycann.frontends.torch_fx.arrays import array_of
from anycann.frontends.torch_fx.builder import numpy_dtype
from anycann.frontends.torch_fx.translate import Port, Translated, translate
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.plan import TensorSpec
from anycann.support.errors import InternalError


class EnginePart:
    """Compiled from `nodes`. Results are written into tensors that the caller gives, in the order of memory that the ports say."""

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[Node], outputs: Sequence[Node], constants: Mapping[Node, torch.Tensor], threads: int
    ):
        self.translated: Translated = translate(nodes, inputs, outputs, {node: on_host(value) for node, value in constants.items()})
        self.inputs, self.outputs = self.translated.inputs, self.translated.outputs
        self._programs = ModelPrograms(self.translated.model, SessionOptions(num_threads=threads), threads)
        self._loaded = self._programs.find([spec_of(port, f"in/{port.name}") for port in self.inputs])
        self._executable = self._loaded.use()
        self._check_outputs()
        self.takes_addresses = self._executable.takes_addresses
        self.run_at = self._executable.run_at

    def _check_outputs(self) -> None:
        """What the program writes must be what the tensors are made for. Raises InternalError."""
        for spec, port in zip(self._executable.program.outputs, self.outputs, strict=True):
            wanted = spec_of(port, port.name)
            if (spec.dtype, spec.shape) != (wanted.dtype, wanted.shape):
                raise InternalError(
                    f"{port.name} is {wanted.dtype}{list(wanted.shape)} in PyTorch, but {spec.dtype}{list(spec.shape)} here"
                )

    def left_to_host(self) -> dict[str, str]:
        """Names of FX nodes that the engine has no native code for, and the reasons."""
        return {node.name.split("/")[0]: node.reason for node in self._loaded.nodes if node.engine != "AiCore"}

    def forget_workspaces(self) -> None:
        """Give back the memory that is kept for runs to come."""
        self._executable.forget_workspaces()

    def run(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Compute `outputs`, tensors that lie as the ports say, from `inputs`."""
        feeds = [stored(tensor, port) for tensor, port in zip(inputs, self.inputs, strict=True)]
        self._executable.run(feeds, [stored(tensor, port) for tensor, port in zip(outputs, self.outputs, strict=True)])


def spec_of(port: Port, name: str) -> TensorSpec:
    """What the engine is told of an input."""
    return TensorSpec(name, numpy_dtype(port.dtype).name, port.stored_shape)


def on_host(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a tensor as an array, row-major; a copy if it lies otherwise."""
    return array_of(tensor if tensor.device.type == "cpu" else host_alias(tensor))


def stored(tensor: torch.Tensor, port: Port) -> Any:
    """The memory of a tensor as an array whose axes go from the slowest to the fastest."""
    return on_host(tensor if port.order is None else tensor.permute(port.order))
