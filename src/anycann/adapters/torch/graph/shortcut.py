"""A call of an inference graph without what AOTAutograd does around each call, where the graph needs none of it.

AOTAutograd turns gradients and autocasting off for PyTorch's operators, writes back inputs that were changed, makes views of inputs again,
takes tensors of other classes apart. A graph that the engine computes by itself, of plain tensors, has nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import PlainTensorMeta

from anycann.adapters.torch.graph.compiled_graph import CompiledGraph


def shortened(compiled: Callable[..., Any], graph: CompiledGraph) -> Callable[..., Any]:
    """`compiled`, AOTAutograd's function of `graph`, which is not asked any more once the graph has a program of the engine alone."""

    def call(*args: Any) -> Any:
        given = list(args)
        run = graph.ready(given)
        return compiled(*args) if run is None else run(given)

    return call


def needs_nothing_around(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether the graph that AOTAutograd is compiling takes the inputs of Dynamo's, and its outputs are the results as they are."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return False
    changes = metadata.num_mutated_inp_runtime_indices + metadata.num_mutated_graph_handled_indices
    views = metadata.num_outputs_aliased + metadata.num_intermediate_bases
    random = metadata.is_rng_op_functionalized or metadata.num_graphsafe_rng_states
    after = metadata.dynamic_outputs or metadata.grad_enabled_mutation is not None or metadata.tokens
    classes = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    plain = all(isinstance(of_tensor, PlainTensorMeta) for of_tensor in classes)
    given = [node for node in module.graph.nodes if node.op == "placeholder"]
    return plain and not (changes or views or random or after) and len(given) == len(example_inputs)
