"""A graph whose inputs change their sizes from call to call, cut into what stays the same and what moves.

hidden -> product -> q                             stays: its sizes were the same in both of two calls, and kernels compute it
past (n keys), k -> Concat -> product with q ...   moves: the host computes it, whatever n is
scores @ values -> [1, 8, 1, 32] -> product        stays again, once the host's result is seen to have the sizes it had

Two calls tell which values move; nothing is concluded from them for a third one. What comes from a moving value is computed by the host in
every call, and what kernels read of it has to have the type it had (`checked`); all else follows from the inputs that stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from anycann.graph.host_operators import HOST_TYPES, QUICK_ON_HOST
from anycann.graph.registry import TensorType, static_type
from anycann.graph.sources import subgraphs
from anycann.passes.regions import Extracted, extract_nodes
from anycann.passes.rules import RULES, apply_rules
from anycann.passes.specialise import RANDOM, replace_by_constants, specialise
from anycann.support.records import dataclass
from anycann.te.dtypes import DType

Types: TypeAlias = Mapping[str, TensorType | None]


@dataclass(frozen=True)
class OpenGraph:
    """Parts in the order in which they run: nodes for the host, or a graph for the compiler.

    constants: what nodes of the host and outputs are known to be. checked: the types that results of the host must have for the kernels
    behind it and for what is known. dtypes: those of the outputs.
    """

    parts: tuple[tuple[ir.Node, ...] | Extracted, ...]
    constants: Mapping[str, np.ndarray]
    checked: Mapping[str, TensorType]
    dtypes: tuple[DType, ...]


@dataclass(frozen=True)
class _Seen:
    """What is known of a value for one set of inputs."""

    type: TensorType | None
    content: np.ndarray | None


def cut(model: ir.Model, one: Types, other: Types) -> OpenGraph | None:
    """`model`, which is not changed, cut by what differs between inputs of the types `one` and `other`; None where the host is no way."""
    clone = model.clone()
    apply_rules(clone.graph, [rule for rule in RULES if rule.early])
    common.RemoveUnusedNodesPass()(clone)
    if any(node.op_type in RANDOM or next(iter(subgraphs(node)), None) is not None for node in clone.graph):
        return None
    return _Cut(clone.graph, _seen(clone, one), _seen(clone, other)).run()


def _seen(model: ir.Model, types: Types) -> dict[str, _Seen]:
    """Types and known contents of all values that are left when `model` is specialised."""
    clone = model.clone()
    specialise(clone.graph, types)
    values = [*clone.graph.inputs, *clone.graph.initializers.values(), *(value for node in clone.graph for value in node.outputs)]
    return {value.name or "": _Seen(static_type(value), _content(value)) for value in values}


def _content(value: ir.Value) -> np.ndarray | None:
    return None if value.const_value is None else value.const_value.numpy()


class _Cut:
    def __init__(self, graph: ir.Graph, one: Mapping[str, _Seen], other: Mapping[str, _Seen]):
        self.graph, self.one, self.other = graph, one, other
        self.turn: dict[ir.Value, int] = {}  # in which a value is made: kernels have the even ones, the host the odd ones
        self.of_moving: set[ir.Value] = set()  # what the host knows before it runs, for these sizes alone
        self.relied_on: set[ir.Value] = set()  # what nodes read whose results are taken as known

    def run(self) -> OpenGraph | None:
        self._give(self.graph.inputs, 0)
        turns: dict[int, list[ir.Node]] = {}
        for node in self.graph:
            if (results := self._known(node)) is not None:
                self.relied_on.update(value for value in node.inputs if value is not None)
                replace_by_constants(self.graph, node, results)
            elif not self._stays_all(node) and not self._suits_host(node):
                return None
            else:
                turns.setdefault(self._take_turn(node), []).append(node)
        types = [self._type(value) for value in self.graph.outputs]
        if any(type_ is None for type_ in types):
            return None
        parts = [extract_nodes(self.graph, turns[turn], f"turn{turn}") if turn % 2 == 0 else tuple(turns[turn]) for turn in sorted(turns)]
        read = {value for turn in turns if turn % 2 for node in turns[turn] for value in node.inputs if value is not None}
        known = {value.name or "": value.const_value for value in (*read, *self.graph.outputs) if value.const_value is not None}
        captured = {value for part in parts if isinstance(part, Extracted) for value in part.captures}
        checked = [value for value in captured | self.relied_on if self.turn.get(value, 0) % 2]
        return OpenGraph(
            tuple(parts),
            {name: tensor.numpy() for name, tensor in known.items()},
            {value.name or "": type_ for value in checked if (type_ := self._type(value)) is not None},
            tuple(type_.dtype for type_ in types if type_ is not None),
        )

    # ---- nodes
    def _stays_all(self, node: ir.Node) -> bool:
        """Whether kernels may compute a node: everything around it stays."""
        values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
        return all(self._stays(value) for value in values) and not any(value in self.of_moving for value in node.inputs)

    def _known(self, node: ir.Node) -> list[np.ndarray] | None:
        """The results of a node that stays, if all are known."""
        contents = [self._seen(value).content for value in node.outputs]
        known = [content for content in contents if content is not None]
        return known if len(known) == len(contents) and self._stays_all(node) else None

    def _suits_host(self, node: ir.Node) -> bool:
        """Whether numpy computes a node soon enough, in types that it knows."""
        types = [self._type(value) for value in (*node.inputs, *node.outputs) if value is not None and value.name]
        quick = node.op_type in QUICK_ON_HOST and not node.domain
        return quick and all(type_ is not None and type_.dtype.name in HOST_TYPES for type_ in types)

    def _take_turn(self, node: ir.Node) -> int:
        """The first turn of its kind in which its operands are there."""
        by_host = not self._stays_all(node)
        latest = max((self.turn.get(value, 0) for value in node.inputs if value is not None), default=0)
        turn = latest + (latest % 2 != by_host)
        self._give(node.outputs, turn)
        if by_host:
            self.of_moving.update(value for value in node.outputs if self._seen(value).content is not None)
        return turn

    # ---- values
    def _seen(self, value: ir.Value) -> _Seen:
        return self.one.get(value.name or "", _Seen(None, None))

    def _type(self, value: ir.Value) -> TensorType | None:
        return self._seen(value).type

    def _stays(self, value: ir.Value) -> bool:
        """Whether its type was the same in both calls, and its content if that was known."""
        one, other = self._seen(value), self.other.get(value.name or "")
        if other is None or one.type is None or one.type != other.type:
            return False
        if one.content is None or other.content is None:
            return one.content is other.content
        return one.content is other.content or np.array_equal(one.content, other.content)

    def _give(self, values: Iterable[ir.Value], turn: int) -> None:
        for value in values:
            self.turn[value] = turn
            type_ = self._type(value)
            if type_ is not None and self._stays(value):
                value.type, value.shape = ir.TensorType(ir.DataType.from_numpy(type_.dtype.numpy)), ir.Shape(type_.shape)
