"""`torch.compile(model)` without a backend: Inductor generates no code for npus, so graphs that compute on one go to the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def install(compile_for_npu: Callable[..., Callable[..., Any]]) -> None:
    """Hand graphs with npu tensors to `compile_for_npu`; all others stay with Inductor."""
    wrapper = torch._TorchCompileInductorWrapper
    inductor = wrapper.__call__

    @functools.wraps(inductor)
    def compile_graph(self: Any, module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        if computes_on_npu(module, inputs):
            return compile_for_npu(module, inputs)
        return inductor(self, module, inputs, **options)

    wrapper.__call__ = compile_graph


def computes_on_npu(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether an input of the graph or a value in it is a tensor of an npu."""
    values = (node.meta.get("example_value") for node in module.graph.nodes)
    return any(isinstance(leaf, torch.Tensor) and leaf.device.type == "npu" for leaf in tree_leaves([list(inputs), list(values)]))
