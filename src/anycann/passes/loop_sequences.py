"""A list that a loop appends to, and that is stacked behind it, is what the loop's turns give, stacked.

Loop(n, c, x, SequenceEmpty()) of a body with SequenceInsert(list, t), ConcatFromSequence<new_axis=1>(list)  ->
Loop(n, c, x) of a body that also gives t; so where parts of one row each are joined

So `torch.jit.script` writes `out.append(t)` and `torch.stack(out)`. A loop that carries tensors only may be native
(`runtime/link_loops.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from anycann.passes.loop_counters import known_through_casts
from anycann.passes.loop_values import Carried, body_of, carried_of, source_of
from anycann.passes.node_writer import NodeWriter
from anycann.passes.rules.rule import stand_for


def stack_appended_values(graph: ir.Graph) -> list[str]:
    """Rewrite the Loops of `graph` that append to a list. Says which."""
    lines = []
    for node in list(graph):
        if node.domain == "" and node.op_type == "Loop":
            appended = {number: value for number, one in enumerate(carried_of(node)) if (value := _appended(one)) is not None}
            if appended:
                lines.append(f"Loop {node.name} stacks {len(appended)} values that were lists")
                _stacked(graph, node, appended)
    return lines


def _appended(one: Carried) -> ir.Value | None:
    """What each turn appends to a list that is empty at first and only ever stacked; None for another value."""
    first, insert, reads = (
        _made_by(one.first, "SequenceEmpty"),
        _made_by(source_of(one.handed_on), "SequenceInsert"),
        list(one.given.uses()),
    )
    if (
        first is None
        or insert is None
        or len(reads) != 1
        or reads[0] != (insert, 0)
        or len(insert.inputs) != 2
        or one.last.is_graph_output()
    ):
        return None
    if one.given.is_graph_output() or not _is_handed_on_alone(one.handed_on, insert.outputs[0]):
        return None
    return insert.inputs[1] if all(_stacks(user, insert.inputs[1]) for user, _ in one.last.uses()) else None


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    producer = None if value is None else value.producer()
    return producer if producer is not None and (producer.domain, producer.op_type) == ("", op_type) else None


def _is_handed_on_alone(handed_on: ir.Value, made: ir.Value) -> bool:
    """True if nobody else reads the list that a turn made, and one carried value is all that it becomes."""
    body = handed_on.graph
    if body is None or handed_on.uses() or list(body.outputs).count(handed_on) != 1:
        return False
    value: ir.Value | None = handed_on
    while value is not made and value is not None and (copy := value.producer()) is not None:
        value = copy.inputs[0]
        if value is not None and (len(value.uses()) != 1 or value.is_graph_output()):
            return False
    return True


def _stacks(node: ir.Node, part: ir.Value | None) -> bool:
    """Whether a node gives what it gets as one tensor, whose axes are known."""
    if part is None or (node.domain, node.op_type) != ("", "ConcatFromSequence"):
        return False
    axis = node.attributes.get_int("axis", 0)
    if node.attributes.get_int("new_axis", 0) != 1:
        return axis == 0 and _is_one_row(part)
    return axis == 0 or part.shape is not None


def _is_one_row(value: ir.Value) -> bool:
    """Whether the first axis has one element for certain, so that stacked values are joined ones."""
    value = source_of(value)
    if value.shape is not None:
        return len(value.shape) > 0 and value.shape[0] == 1
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type == "If":
        return all(_is_one_row(branch.as_graph().outputs[value.index() or 0]) for branch in node.attributes.values())
    axes = known_through_casts(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or axes.size == 0 or axes.reshape(-1)[0] != 0:
        return False
    return node.op_type == "Unsqueeze" or (node.op_type.startswith("Reduce") and node.attributes.get_int("keepdims", 1) == 1)


def _stacked(graph: ir.Graph, loop: ir.Node, appended: Mapping[int, ir.Value]) -> None:
    """Put a loop that gives the values `appended`, by the number of the carried list, in the place of `loop`."""
    body, count = body_of(loop), len(carried_of(loop))
    given = [_copied(body, value) for value in appended.values()]
    lists = [body.outputs[1 + number] for number in appended]
    body.inputs[:] = [value for number, value in enumerate(body.inputs) if number - 2 not in appended]
    body.outputs[:] = [*(value for number, value in enumerate(body.outputs) if number - 1 not in appended), *given]
    for value in lists:
        _remove_list(body, value)
    inputs = [value for number, value in enumerate(loop.inputs) if number - 2 not in appended]
    kept = [value for number, value in enumerate(loop.outputs) if number >= count or number not in appended]
    new = ir.Node("", "Loop", inputs, list(loop.attributes.values()), num_outputs=len(kept) + len(appended), name=loop.name)
    graph.insert_before(loop, new)
    for old, value in zip(kept, new.outputs, strict=False):
        value.name, value.type, value.shape = old.name, old.type, old.shape
        old.replace_all_uses_with(value, replace_graph_outputs=True)
    for (number, part), value in zip(appended.items(), new.outputs[len(kept) :], strict=True):
        value.name = f"{loop.outputs[number].name}/stacked"
        value.type = None if part.dtype is None else ir.TensorType(part.dtype)
        for user, _ in tuple(loop.outputs[number].uses()):
            _replace(user, value, part)
    graph.remove(loop, safe=True)


def _remove_list(body: ir.Graph, value: ir.Value) -> None:
    """Take what hands a list on, and the SequenceInsert, out of the body."""
    node: ir.Node | None = value.producer()
    while node is not None:
        read = node.inputs[0]
        body.remove(node, safe=True)
        node = None if node.op_type == "SequenceInsert" or read is None else read.producer()


def _copied(body: ir.Graph, value: ir.Value) -> ir.Value:
    """A value of its own: what is appended may also be handed on, or come from outside."""
    copy = ir.Node("", "Identity", [value], name=f"{value.name}/appended")
    copy.outputs[0].name, copy.outputs[0].type, copy.outputs[0].shape = f"{value.name}/appended", value.type, value.shape
    body.append(copy)
    return copy.outputs[0]


def _replace(concat: ir.Node, stacked: ir.Value, part: ir.Value) -> None:
    """The parts lie along the first axis; another one is where it belongs after a Transpose, and parts that are rows follow each other."""
    axis, graph, result = concat.attributes.get_int("axis", 0), concat.graph, concat.outputs[0]
    assert graph is not None
    if concat.attributes.get_int("new_axis", 0) == 0:
        writer = NodeWriter(graph, concat.name or "rows")
        joined = writer.add("Squeeze", stacked, writer.number(np.array([1])))
        graph.insert_before(concat, writer.nodes)
        stand_for(result, joined)
        graph.remove(concat, safe=True)
        return
    rank = 1 if part.shape is None else len(part.shape) + 1
    others = list(range(1, rank))
    others.insert(axis % rank, 0)
    permutation = [ir.AttrInt64s("perm", others)] if axis % rank else []
    node = ir.Node("", "Transpose" if permutation else "Identity", [stacked], permutation, name=concat.name)
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = result.name, result.type, result.shape
    graph.insert_before(concat, node)
    result.replace_all_uses_with(node.outputs[0], replace_graph_outputs=True)
    graph.remove(concat, safe=True)
