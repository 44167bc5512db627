"""The backend of torch.compile: AOTAutograd's graphs, forward and backward, become programs of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from anycann.adapters.torch.graph.attention import keep_attention_whole
from anycann.adapters.torch.graph.compiled_graph import CompiledGraph, Watch
from anycann.adapters.torch.graph.open_graph import OpenGraph, is_open
from anycann.adapters.torch.graph.resizing import resizing_kept_whole
from anycann.adapters.torch.graph.saved import save_row_major
from anycann.frontends.torch_fx.decomposed import decompositions
from anycann.support.records import dataclass

Replace = Callable[[str, torch.fx.GraphModule, Sequence[Any]], Callable[..., Any] | None]


@dataclass(frozen=True)
class Settings:
    """How a backend compiles.

    replace: asked first about each graph, with its kind (inference, forward, backward) and fake inputs; what it answers runs instead.
    watch: told of each program that is compiled. decompositions: further operators to take apart.
    """

    replace: Replace | None = None
    watch: Watch | None = None
    decompositions: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)


def anycann(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """`torch.compile(model, backend="anycann")`. Options that torch.compile hands on (mode, options) are for other backends."""
    return Backend(Settings())(module, example_inputs)


class Backend:
    """What torch.compile calls with each graph of Dynamo."""

    def __init__(self, settings: Settings):
        self.settings = settings

    def __call__(self, module: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """The graph, compiled for inference or for training, as AOTAutograd decides."""
        keep_attention_whole(module)
        compile_with = aot_autograd(
            fw_compiler=lambda graph, inputs: self._graph(graph, "forward", inputs, ()),
            bw_compiler=lambda graph, inputs: self._graph(graph, "backward", inputs, ()),
            inference_compiler=lambda graph, inputs: self._graph(graph, "inference", inputs, weights()),
            partition_fn=_partition,
            decompositions={**decompositions(), **self.settings.decompositions},
        )
        with resizing_kept_whole():
            compiled: Callable[..., Any] = compile_with(module, example_inputs)
        return compiled

    def _graph(self, module: torch.fx.GraphModule, kind: str, inputs: Sequence[Any], fixed: tuple[int, ...]) -> Any:
        """Weights are inputs of a graph that trains, for they change; they are built into others."""
        replaced = None if self.settings.replace is None else self.settings.replace(kind, module, inputs)
        if replaced is not None:
            return replaced
        return (OpenGraph if is_open(module) else CompiledGraph)(module, kind, fixed, self.settings.watch)


def _partition(joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[Any, Any]:
    """The forward and the backward graph of a joint one."""
    forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    save_row_major(forward, backward, num_fwd_outputs)
    return forward, backward


def weights() -> tuple[int, ...]:
    """The positions of the parameters and buffers among the inputs of the graph that is compiled, without those that it changes."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return ()
    changed = set(metadata.mutated_inp_runtime_indices)
    return tuple(position for position in metadata.static_input_indices if position not in changed)
