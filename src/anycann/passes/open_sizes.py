"""A graph whose inputs change their sizes from call to call, cut into what stays the same and what moves.

hidden -> product -> q                             stays: its sizes were the same in both of two calls, and kernels compute it
past (n keys), k -> Concat -> product with q ...   moves: the host computes it, whatever n is
prompt (n words) -> product with constants ...     moves too, but row by row: kernels for blocks of rows compute it
scores @ values -> [1, 8, 1, 32] -> product        stays again, once the host's result is seen to have the sizes it had

Two calls tell which values move; nothing is concluded from them for a third one. What comes from a moving value is computed by the host in
every call, and what kernels read of it has to have the type it had (`checked`); all else follows from the inputs that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from anycann.graph.host_operators import HOST_TYPES, QUICK_ON_HOST
from anycann.graph.registry import TensorType, static_type
from anycann.graph.sources import subgraphs
from anycann.passes.open_attention import AttentionPart, Nodes, find_attention, with_attention
from anycann.passes.regions import Extracted, extract_nodes
from anycann.passes.row_wise import Extent, has_weights, is_row_wise, moving_axis
from anycann.passes.rules import RULES, apply_rules
from anycann.passes.specialise import RANDOM, replace_by_constants, specialise
from anycann.support.records import dataclass
from anycann.te.dtypes import DType

KERNELS, HOST, ROWS = range(3)  # what computes a node; what comes behind each other takes turns, and that is its number modulo 3
LEAST_WEIGHTS = 1 << 12  # of a product that kernels for blocks of rows are worth compiling for

Types: TypeAlias = Mapping[str, TensorType | None]
Part: TypeAlias = "Nodes | Extracted | RowPart | AttentionPart"


@dataclass(frozen=True)
class RowPart:
    """A graph that computes each row by itself, and the types in one of the calls of what it reads.

    axes: along which its inputs have those rows, None for one that stays; output_axes: its outputs, of `output_types` in that
    call. nodes: the same for the host, in order, if it knows them all.
    """

    graph: Extracted
    types: tuple[TensorType, ...]
    axes: tuple[int | None, ...]
    output_axes: tuple[int, ...]
    output_types: tuple[TensorType, ...]
    nodes: Nodes


@dataclass(frozen=True)
class OpenGraph:
    """Parts in the order in which they run: nodes for the host, attention, or a graph for the compiler, of rows or as it is.

    constants: what nodes of the host and outputs are known to be. checked: the types that results of the host must have for the kernels
    behind it and for what is known. dtypes: those of the outputs.
    """

    parts: tuple[Part, ...]
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
        self.turn: dict[ir.Value, int] = {}  # in which a value is made
        self.of_moving: set[ir.Value] = set()  # what the host knows before it runs, for these sizes alone
        self.relied_on: set[ir.Value] = set()  # what nodes read whose results are taken as known

    def run(self) -> OpenGraph | None:
        self._give(self.graph.inputs, 0)
        turns: dict[int, list[ir.Node]] = {}
        for node in self.graph:
            if (results := self._known(node)) is not None:
                self.relied_on.update(value for value in node.inputs if value is not None)
                replace_by_constants(self.graph, node, results)
            elif (by := self._who(node)) is None:
                return None
            else:
                turns.setdefault(self._take_turn(node, by), []).append(node)
        types = [self._type(value) for value in self.graph.outputs]
        if any(type_ is None for type_ in types):
            return None
        by_turn = [part for turn in sorted(turns) for part in self._parts(turn, turns[turn])]
        nodes = [node for part in by_turn if isinstance(part, tuple) for node in part]
        attention = find_attention(nodes, self.relied_on, self._type)
        parts = [each for part in by_turn for each in (with_attention(part, attention) if isinstance(part, tuple) else [part])]
        on_host = [part.nodes if isinstance(part, AttentionPart) else part for part in parts if isinstance(part, tuple | AttentionPart)]
        read = {value for group in on_host for node in group for value in node.inputs if value is not None}
        known = {value.name or "": value.const_value for value in (*read, *self.graph.outputs) if value.const_value is not None}
        captured = {value for part in parts if isinstance(part, Extracted) for value in part.captures}
        checked = [value for value in captured | self.relied_on if self.turn.get(value, 0) % 3 == HOST]
        return OpenGraph(
            tuple(parts),
            {name: tensor.numpy() for name, tensor in known.items()},
            {value.name or "": type_ for value in checked if (type_ := self._type(value)) is not None},
            tuple(type_.dtype for type_ in types if type_ is not None),
        )

    # ---- parts
    def _parts(self, turn: int, nodes: Sequence[ir.Node]) -> list[Nodes | Extracted | RowPart]:
        """What computes the nodes of a turn. Rows that nothing connects need not be as many in a third call: parts of their own."""
        if turn % 3 == HOST:
            return [tuple(nodes)]
        if turn % 3 == KERNELS:
            return [extract_nodes(self.graph, nodes, f"turn{turn}")]
        return [self._row_part(part, f"turn{turn}/{number}") for number, part in enumerate(_connected(nodes, self._moves))]

    def _row_part(self, nodes: Sequence[ir.Node], name: str) -> Nodes | RowPart:
        """Kernels for rows, or the host where they would have no weights to multiply with."""
        on_host = tuple(nodes) if all(map(self._suits_host, nodes)) else ()
        if on_host and not any(has_weights(node, LEAST_WEIGHTS) for node in nodes):
            return on_host
        graph = extract_nodes(self.graph, nodes, name)
        types = tuple(type_ for value in graph.captures if (type_ := self._type(value)) is not None)
        outputs = tuple(axis for value in graph.outputs if (axis := self._axis(value)) is not None)
        made = tuple(type_ for value in graph.outputs if (type_ := self._type(value)) is not None)
        return RowPart(graph, types, tuple(map(self._axis, graph.captures)), outputs, made, on_host)

    # ---- nodes
    def _who(self, node: ir.Node) -> int | None:
        """What computes a node."""
        if self._stays_all(node):
            return KERNELS
        if self._is_row_wise(node):
            return ROWS
        return HOST if self._suits_host(node) else None

    def _is_row_wise(self, node: ir.Node) -> bool:
        """Whether each row is computed by itself; what else is read is no result of the host's that was known by the sizes."""
        inputs = [value for value in node.inputs if value is not None]
        moving = [value for value in (*inputs, *node.outputs) if value.name and not self._stays(value)]
        if len({self._row_counts(value) for value in moving}) != 1 or any(self._axis(value) is None for value in moving):
            return False
        if any(self._stays(value) and value in self.of_moving for value in inputs):
            return False
        if any(not output.name or self._seen(output).content is not None for output in node.outputs):
            return False
        extents = [None if value is None else self._extent(value) for value in (*node.inputs, *node.outputs)]
        outputs = [extent for extent in extents[len(node.inputs) :] if extent is not None]
        return len(outputs) == len(node.outputs) and is_row_wise(node, extents[: len(node.inputs)], outputs)

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

    def _take_turn(self, node: ir.Node, by: int) -> int:
        """The first turn of its kind in which its operands are there."""
        latest = max((self.turn.get(value, 0) for value in node.inputs if value is not None), default=0)
        turn = latest + (by - latest) % 3
        self._give(node.outputs, turn)
        if by == HOST:
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

    def _moves(self, value: ir.Value) -> bool:
        return not self._stays(value)

    def _axis(self, value: ir.Value) -> int | None:
        """The only axis along which a value moves; None for one that stays, or moves along more."""
        one, other = (None if seen is None else seen.type for seen in (self._seen(value), self.other.get(value.name or "")))
        return None if one is None or other is None or one.dtype != other.dtype else moving_axis(one.shape, other.shape)

    def _row_counts(self, value: ir.Value) -> tuple[int, int]:
        """How many rows a value that moves along one axis had in both calls."""
        axis, types = self._axis(value), (self._type(value), self.other[value.name or ""].type if value.name in self.other else None)
        one, other = (-1 if axis is None or type_ is None else type_.shape[axis] for type_ in types)
        return one, other

    def _extent(self, value: ir.Value) -> Extent | None:
        type_ = self._type(value)
        return None if type_ is None else Extent(type_.shape, self._axis(value))

    def _give(self, values: Iterable[ir.Value], turn: int) -> None:
        for value in values:
            self.turn[value] = turn
            type_ = self._type(value)
            if type_ is not None and (self._stays(value) or self._axis(value) is not None):
                value.type = ir.TensorType(ir.DataType.from_numpy(type_.dtype.numpy))
            if type_ is not None and self._stays(value):
                value.shape = ir.Shape(type_.shape)


def _connected(nodes: Sequence[ir.Node], moves: Callable[[ir.Value], bool]) -> list[list[ir.Node]]:
    """The nodes, in order, with those together that read or make the same moving values."""
    found: list[tuple[list[ir.Node], set[ir.Value]]] = []
    for node in nodes:
        values = {value for value in (*node.inputs, *node.outputs) if value is not None and moves(value)}
        joined = [each for each in found if each[1] & values]
        found = [each for each in found if not each[1] & values]
        found.append(([*(other for each in joined for other in each[0]), node], values.union(*(each[1] for each in joined))))
    order = {node: number for number, node in enumerate(nodes)}
    return [sorted(each[0], key=order.__getitem__) for each in found]
