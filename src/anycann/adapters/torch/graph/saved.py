"""What forward keeps for backward lies as the engine computes it.

PyTorch's kernels keep the strides of their operands, and AOTAutograd's graphs say so: an attention's keys, transposed for the scores, are
saved as columns, images of a channels-last model pixel by pixel. The engine computes row-major tensors, and would put them into that order
for nobody but its own backward graph, which puts them back. Here both graphs are told of the row-major tensor before the transposes.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch.fx import GraphModule, Node

from anycann.adapters.torch.graph.open_graph import is_open
from anycann.adapters.torch.graph.partition import base_of, is_random, maker_of
from anycann.frontends.torch_fx.translate import dense_order, why_not

aten = torch.ops.aten
_PERMUTING = frozenset((aten.transpose.int, aten.t.default, aten.permute.default))
_OF_MEMORY = frozenset((aten.as_strided.default, aten.view.dtype, aten.view_as_complex.default))


def save_row_major(forward: GraphModule, backward: GraphModule, results: int) -> None:
    """Change both graphs in place; `results` outputs of the forward graph are not saved but handed out."""
    if is_open(backward) or any(node.target in _OF_MEMORY for node in backward.graph.nodes):
        return  # its views are made again of what is met, or it reads memory as it lies
    output = forward.graph.output_node()
    outputs = list(output.args[0])
    placeholders = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    shown = Counter(base_of(node) for node in outputs if isinstance(node, Node))
    for at in range(results, len(outputs)):
        node = outputs[at]
        if isinstance(node, Node) and node.name in placeholders and _is_permuted(node) and shown[base_of(node)] == 1:
            outputs[at] = _save_before(forward, node, placeholders[node.name])
    output.args = (tuple(outputs),)
    for module in (forward, backward):
        module.graph.lint()
        module.recompile()


def _is_permuted(node: Node) -> bool:
    """Whether it is a tensor in another order than row-major, without gaps, that the engine computes."""
    fake = node.meta.get("val")
    if not isinstance(fake, torch.Tensor) or fake.is_contiguous() or dense_order(fake) is None:
        return False
    maker = maker_of(base_of(node))
    return maker.op == "call_function" and not is_random(maker) and why_not(maker) is None


def _save_before(forward: GraphModule, node: Node, placeholder: Node) -> Node:
    """The node to save instead: what `node` permutes, row-major. Backward permutes it as forward does."""
    base, permutes = node, list[Node]()
    while base.target in _PERMUTING:
        permutes.insert(0, base)
        base = base.all_input_nodes[0]
    with forward.graph.inserting_before(forward.graph.output_node()):
        saved = forward.graph.call_function(aten.clone.default, (base,), {"memory_format": torch.contiguous_format})
    saved.meta = {**node.meta, "val": base.meta["val"].contiguous()}
    placeholder.meta["val"] = saved.meta["val"]
    readers, value = list(placeholder.users), placeholder
    with placeholder.graph.inserting_before(_first_call(placeholder)):
        for permute in permutes:
            value = placeholder.graph.call_function(permute.target, (value, *permute.args[1:]))
            value.meta = {**permute.meta, "val": permute.target(value.args[0].meta["val"], *permute.args[1:])}
    for reader in readers:
        reader.replace_input_with(placeholder, value)
    return saved


def _first_call(placeholder: Node) -> Node:
    return next(node for node in placeholder.graph.nodes if node.op != "placeholder")
