"""The nodes of a graph, of a function or of the body of a loop, one after the other, each by its row of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
import importlib
import pkgutil
from typing import NoReturn

import onnx_ir as ir

from anycann.frontends.tensorflow.builder import Builder
from anycann.frontends.tensorflow.definition import DEAD, MISSING, OPERATORS, Call, Convert, Result
from anycann.frontends.tensorflow.graph import Edge, SourceGraph, SourceNode
from anycann.frontends.tensorflow.layout import Tensor
from anycann.support.errors import ModelError, UnsupportedError, context

MERGES = ("Merge", "RefMerge")
LISTED = 8  # operators that an error names


class Conversion:
    """Converts `graph` by `builder`. `missing` collects the nodes whose operators have no row."""

    def __init__(self, builder: Builder, graph: SourceGraph, missing: list[SourceNode] | None = None):
        self.builder, self.graph = builder, graph
        self.missing: list[SourceNode] = [] if missing is None else missing
        self.readers: Mapping[str, int] = {}

    def run(self, edges: Sequence[Edge], given: Mapping[str, Sequence[Tensor]]) -> list[Tensor]:
        """What `edges` come to. given: the results of nodes that are not converted, by name."""
        results = dict(given)
        needed = self.graph.needed(edges, frozenset(given))
        self.readers = Counter(edge.node for edge in (*edges, *(edge for node in needed for edge in node.inputs)))
        for node in needed:
            if node.name not in results:
                with context(f"while converting {node}"):
                    results[node.name] = self._results(node, [_result(results, self.graph, edge) for edge in node.inputs])
        return [_result(results, self.graph, edge) for edge in edges]

    def _results(self, node: SourceNode, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        """What a node comes to. One without a row is added to `missing`: an error only if an output needs it in the end."""
        self.builder.source = node.name
        is_merge = node.op in MERGES
        alive = [tensor for tensor in operands if not tensor.dead]
        if operands and (not alive if is_merge else len(alive) < len(operands)):
            return [DEAD]
        if node.op not in operators():
            self.missing.append(node)
            return [MISSING]
        if MISSING in alive:
            return [MISSING]
        made = _made(Call(self, node, operands))
        self.builder.name_last(node.name)
        tensors = [
            item if isinstance(item, Tensor) else Tensor(last=item) for item in ([made] if isinstance(made, Tensor | ir.Value) else made)
        ]
        branches = frozenset(branch for tensor in operands for branch in tensor.branches)
        if branches and not is_merge:
            tensors = [replace(tensor, branches=tensor.branches | branches, padded=None) for tensor in tensors]
        return tensors


def refuse(missing: Sequence[SourceNode]) -> NoReturn:
    """Raise UnsupportedError with every operator that has no row."""
    counts = Counter(node.op for node in missing)
    words = ", ".join(f"{op} ({count}, the first is '{_first(missing, op)}')" for op, count in counts.most_common(LISTED))
    raise UnsupportedError(f"operators of TensorFlow that are not there: {words}")


def _first(nodes: Sequence[SourceNode], op: str) -> str:
    return next(node.name for node in nodes if node.op == op)


@cache
def operators() -> Mapping[str, Convert]:
    """The table, with the rows of every file."""
    package = importlib.import_module("anycann.frontends.tensorflow")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return OPERATORS


def _made(call: Call) -> Result:
    """What the row of the operator makes of the node. Raises ModelError where attributes or operands are not what its operator has."""
    try:
        return operators()[call.node.op](call)
    except (AssertionError, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelError(f"{call.node}: its attributes or operands are not those of the operator: {error}") from error


def _result(results: Mapping[str, Sequence[Tensor]], graph: SourceGraph, edge: Edge) -> Tensor:
    found = results[edge.node]
    if found[0] is DEAD or found[0] is MISSING:
        return found[0]
    if edge.index >= len(found):
        raise ModelError(f"{graph.nodes[edge.node]} has {len(found)} results here; result {edge.index} is read")
    return found[edge.index]
