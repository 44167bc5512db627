"""What must hold of a graph between any two passes. Run after each of them in tests (ANYCANN_VERIFY=1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import is_
from typing import NamedTuple

import onnx_ir as ir

from anycann.graph.infer import infer_outputs
from anycann.graph.registry import Registry, library, static_type
from anycann.support.errors import AnyCANNError, InternalError

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})


class Types(NamedTuple):
    """What the types of a node's results follow from, and the types they have."""

    facts: tuple[object, ...]  # compared by value
    objects: tuple[object, ...]  # attributes and known values, which nobody changes: one that is another object is another value

    @classmethod
    def of(cls, node: ir.Node) -> Types:
        values = (*node.inputs, *node.outputs)
        facts = [None if v is None else (type(v.type), v.dtype, None if v.shape is None else tuple(v.shape)) for v in values]
        known = (None if v is None else v.const_value for v in node.inputs)
        return cls((node.domain, node.op_type, len(node.inputs), len(node.attributes), *facts), (*node.attributes.values(), *known))

    def are(self, other: Types | None) -> bool:
        return other is not None and self.facts == other.facts and all(map(is_, self.objects, other.objects))


Agreed = dict[ir.Node, Types]  # the nodes whose types were found right, with what they were found right for


def verify(graph: ir.Graph, after: str, typed: bool, agreed: Agreed | None = None) -> None:
    """Raise InternalError naming the pass `after` unless the graph is well formed, and (`typed`) its types follow from its inputs'.

    `agreed` is kept from one pass to the next: types are inferred again only where something has changed.
    """
    found = list(faults(graph, typed, agreed))
    if found:
        raise InternalError(f"after the pass {after!r} the graph is wrong: " + "; ".join(found[:5]))


def faults(graph: ir.Graph, typed: bool = False, agreed: Agreed | None = None) -> Iterator[str]:
    """Each fault as a sentence."""
    registry = library()
    agreed = {} if agreed is None else agreed
    known: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
    yield from (f"initialiser {v.name!r} has no value" for v in graph.initializers.values() if v.const_value is None)
    for node in graph:
        yield from _node_faults(node, known)
        known.update(node.outputs)
        if typed and not (types := Types.of(node)).are(agreed.get(node)):
            wrong = list(_type_faults(node, registry))
            yield from wrong
            if not wrong:
                agreed[node] = types
    yield from (f"output {v.name!r} is made nowhere" for v in graph.outputs if v not in known)
    names = Counter(value.name for node in graph for value in node.outputs if value.name)
    yield from (f"two values are called {name!r}" for name, times in names.items() if times > 1)


def _node_faults(node: ir.Node, known: set[ir.Value]) -> Iterator[str]:
    for number, value in enumerate(node.inputs):
        if value is not None and value not in known:
            yield f"operand {number} of {node.name!r} ({node.op_type}), {value.name!r}, is used before it is made"
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from _subgraph_faults(attribute.as_graph(), known)


def _subgraph_faults(graph: ir.Graph, outer: set[ir.Value]) -> Iterator[str]:
    known = {*outer, *graph.inputs, *graph.initializers.values()}
    for node in graph:
        yield from _node_faults(node, known)
        known.update(node.outputs)
    yield from (f"output {v.name!r} of a subgraph is made nowhere" for v in graph.outputs if v not in known)


def _type_faults(node: ir.Node, registry: Registry) -> Iterator[str]:
    """Infer again and compare; a type that inference cannot tell is not questioned."""
    if node.op_type in CONTROL_FLOW and node.domain == "":
        return
    try:
        again = infer_outputs(node, registry)
    except AnyCANNError as error:
        yield str(error)
        return
    for value, inferred in zip(node.outputs, again, strict=True):
        type_ = static_type(value)
        if type_ is None or inferred.shape is None or inferred.type is None:
            continue
        if not _agree(type_.shape, inferred.shape) or value.type != inferred.type:
            yield f"{value.name!r} is {type_}, but {node.op_type} makes {inferred.type}{list(inferred.shape)} of its operands"


def _agree(shape: tuple[int, ...], inferred: tuple[int | None, ...]) -> bool:
    """Whether a value of this shape may be what inference expects; a size it cannot tell may be any."""
    return len(shape) == len(inferred) and all(size in (got, None) for got, size in zip(shape, inferred, strict=True))
