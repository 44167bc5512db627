"""The backend of torch.compile: AOTAutograd's graphs, forward and backward, become programs of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from anycann.adapters.torch.graph.attention import keep_attention_whole
from anycann.adapters.torch.graph.compiled_graph import CompiledGraph, OpenGraph, is_open
from anycann.adapters.torch.graph.decompositions import decompositions


def anycann(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """`torch.compile(model, backend="anycann")`. Options that torch.compile hands on (mode, options) are for other backends."""
    keep_attention_whole(module)
    return _aot()(module, example_inputs)


@cache
def _aot() -> Any:
    return aot_autograd(
        fw_compiler=compile_forward,
        bw_compiler=compile_backward,
        inference_compiler=compile_inference,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
    )


def compile_forward(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    """The forward half of a training graph; weights are inputs, for they change."""
    return _graph(module, "forward", ())


def compile_backward(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    """The backward half."""
    return _graph(module, "backward", ())


def compile_inference(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    """A graph without gradients; weights are built in."""
    return _graph(module, "inference", weights())


def weights() -> tuple[int, ...]:
    """The positions of the parameters and buffers among the inputs of the graph that is compiled, without those that it changes."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return ()
    changed = set(metadata.mutated_inp_runtime_indices)
    return tuple(position for position in metadata.static_input_indices if position not in changed)


def _graph(module: torch.fx.GraphModule, kind: str, fixed: tuple[int, ...]) -> Any:
    return OpenGraph(module, kind, fixed) if is_open(module) else CompiledGraph(module, kind, fixed)
