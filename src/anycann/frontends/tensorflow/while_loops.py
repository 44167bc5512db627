"""While loops to Loop: of TensorFlow 2 by functions, of TensorFlow 1 as frames.py found them. Function calls become what they call.

A condition that counts becomes the number of turns. What no turn changes stays outside. A list that each turn writes at the place that it
counts becomes a result that Loop stacks, other lists are carried whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.builder import Builder, common_sizes, known_array, sizes_of
from anycann.frontends.tensorflow.conversion import Conversion
from anycann.frontends.tensorflow.definition import HUGE, MISSING, Call, Result, operator
from anycann.frontends.tensorflow.graph import Edge, Function, Loop, Region
from anycann.frontends.tensorflow.layout import NotStacked, Tensor, channels_last
from anycann.frontends.tensorflow.tensor_lists import filled_up, zeros
from anycann.frontends.tensorflow.turns import bounds, counters, unchanged
from anycann.support.records import dataclass

_MOST_SHAPES = 4  # shapes of the variables that are tried: as they begin, and open where a turn changes them


@operator("While StatelessWhile")
def _while(call: Call) -> Result:
    lifted = call.conversion.graph.loops.get(call.node.name)
    loop = lifted or Loop(_region(_function(call, "cond")), _region(_function(call, "body")))
    try:
        return _Conversion(call, loop, stacked=True).results()
    except NotStacked:
        return _Conversion(call, loop, stacked=False).results()


@operator("PartitionedCall StatefulPartitionedCall")
def _call(call: Call) -> Result:
    return _called(call, _function(call, "f"), call.tensors)


@operator("If StatelessIf")
def _if(call: Call) -> Result:
    """Both sides are computed, as those of TensorFlow 1 are, unless the condition is known."""
    known, operands = call.known_or_none(0), call.tensors[1:]
    then, otherwise = _function(call, "then_branch"), _function(call, "else_branch")
    if known is not None:
        return _called(call, then if known else otherwise, operands)
    condition = call.op("Cast", call.value(0), to=int(ir.DataType.BOOL))
    pairs = list(zip(_called(call, then, operands), _called(call, otherwise, operands), strict=True))
    if any(MISSING in pair for pair in pairs):
        return [MISSING] * len(pairs)
    return [call.builder.select(condition, *(channels_last(call.builder, tensor) for tensor in pair)) for pair in pairs]


def _function(call: Call, name: str) -> Function:
    wanted = cast(str, call.node.attributes.get(name))
    found = call.conversion.graph.functions.get(wanted)
    if found is None:
        raise call.fail(f"its function {wanted!r} is not in the file")
    return found


def _called(call: Call, function: Function, operands: Sequence[Tensor]) -> list[Tensor]:
    given = {name: [tensor] for name, tensor in zip(function.parameters, operands, strict=True)}
    return Conversion(call.builder, function.graph, call.conversion.missing).run(function.results, given)


def _region(function: Function) -> Region:
    return Region(function.graph, tuple((Edge(name),) for name in function.parameters), function.results)


@dataclass(frozen=True)
class _Turn:
    """The body that was made. results: of every variable, None for those that stay."""

    graph: ir.Graph
    variables: Mapping[int, ir.Value]
    results: Sequence[Tensor | None]


class _Conversion:
    """One loop. stacked: lists that begin empty become results that Loop stacks; else they are carried whole."""

    def __init__(self, call: Call, loop: Loop, stacked: bool):
        self._call, self._loop, self._builder = call, loop, call.builder
        same = unchanged(loop.body)
        self._kept = {number: _outside(self._builder, tensor) for number, tensor in enumerate(call.tensors) if number in same}
        if any(t.reserved is not None and t.reserved.in_turn and number not in self._kept for number, t in enumerate(call.tensors)):
            raise NotStacked(f"{call.node}: a loop in a loop writes to a list of the outer one")
        empty = {number: t.reserved for number, t in enumerate(call.tensors) if t.reserved is not None and number not in self._kept}
        self._lists = {number: replace(list_, in_turn=True) for number, list_ in empty.items()} if stacked else {}
        whole = {} if stacked else {number: zeros(self._builder, list_) for number, list_ in empty.items()}
        self._carried = {
            number: whole[number] if number in whole else channels_last(self._builder, tensor)
            for number, tensor in enumerate(call.tensors)
            if number not in self._kept and number not in self._lists
        }
        self._counters = counters(loop.body)

    def results(self) -> list[Tensor]:
        """What the variables are at the end."""
        trips = self._trips()
        condition = self._builder.constant(True) if trips is not None else self._condition(self._builder, self._operands())
        if MISSING in (condition, turn := self._turn(trips is not None)):
            return [MISSING] * len(self._call.tensors)
        assert isinstance(condition, ir.Value)
        assert isinstance(turn, _Turn)
        self._builder.source = self._call.node.name
        made = self._builder.loop(trips, condition, list(self._carried.values()), turn.graph)
        ends = dict(zip([*self._carried, *self._lists], made, strict=True))
        return [
            self._kept[number]
            if number in self._kept
            else Tensor(last=self._list(number, turn, ends) if number in self._lists else ends[number])
            for number in range(len(self._call.tensors))
        ]

    def _operands(self) -> dict[int, Tensor]:
        begun = {number: Tensor(last=value) for number, value in self._carried.items()}
        return {**self._kept, **begun, **{number: Tensor(reserved=list_) for number, list_ in self._lists.items()}}

    def _trips(self) -> ir.Value | None:
        """The number of turns, where the condition counts to what is known before the first."""
        found = bounds(self._loop.condition)
        counts: list[ir.Value] = []
        for number, bound in found or ():
            end = self._kept[bound].last if isinstance(bound, int) and bound in self._kept else None
            if isinstance(bound, np.ndarray):
                end = self._builder.constant(bound)
            if number not in self._counters or number not in self._carried or end is None:
                return None
            counts.append(self._call.op("Sub", self._call.cast(end, np.int64), self._call.cast(self._carried[number], np.int64)))
        if not counts:
            return None
        return self._call.op("Max", self._call.op("Min", *dict.fromkeys(counts)), self._call.constant(0, np.int64))

    def _condition(self, builder: Builder, variables: Mapping[int, Tensor]) -> ir.Value | Tensor:
        region = self._loop.condition
        missing = self._call.conversion.missing
        (found,) = Conversion(builder, region.graph, missing).run(region.results, _given(region, variables))
        return found if found is MISSING else channels_last(builder, found)

    def _turn(self, is_counted: bool) -> _Turn | Tensor:
        """The body, with variables whose shapes hold for every turn; MISSING where an operator has no row."""
        shapes = {number: sizes_of(value) for number, value in self._carried.items()}
        for _ in range(_MOST_SHAPES):
            turn = self._attempt(shapes, is_counted)
            if not isinstance(turn, _Turn):
                return turn
            after = {
                number: common_sizes(shapes[number], tensor.shape)
                for number, tensor in enumerate(turn.results)
                if number in shapes and tensor
            }
            if after == shapes:
                return turn
            shapes = after
        raise self._call.fail("the shapes of its variables change in every turn")

    def _attempt(self, shapes: Mapping[int, tuple[int | None, ...] | None], is_counted: bool) -> _Turn | Tensor:
        body = Builder(self._builder)
        body.parameter("turn", np.dtype(np.int64), ())
        going = body.parameter("condition", np.dtype(bool), ())
        variables = {number: body.parameter("variable", _dtype(value), shapes[number]) for number, value in self._carried.items()}
        inside = {**self._operands(), **{number: Tensor(last=value) for number, value in variables.items()}}
        region = self._loop.body
        results = Conversion(body, region.graph, self._call.conversion.missing).run(region.results, _given(region, inside))
        if MISSING in results:
            return MISSING
        following = {number: Tensor(last=channels_last(body, results[number])) for number in self._carried}
        goes_on = going if is_counted else self._condition(body, {**inside, **following})
        if not isinstance(goes_on, ir.Value):
            return MISSING
        items = [self._item(results[number], variables, number) for number in self._lists]
        outputs = [goes_on, *(tensor.any for tensor in following.values()), *items]
        body.graph.outputs.extend([body.copy(value) for value in outputs])
        return _Turn(body.graph, variables, [results[number] if number not in self._kept else None for number in range(len(results))])

    def _item(self, result: Tensor, variables: Mapping[int, ir.Value], number: int) -> ir.Value:
        """What a turn writes to a list. Raises NotStacked where that is not one item, at the place that it counts or always the first."""
        written, list_ = result.written, self._lists[number]
        if written is None or written.list_ is not list_:
            raise NotStacked(f"{self._call.node}: a turn does not write one item of the list that is variable {number}")
        if self._is_counted(written.index, variables) or _is_only(written.index, known_array(list_.size)):
            return written.item
        raise NotStacked(f"{self._call.node}: the list that is variable {number} is not written in the order of turns")

    def _is_counted(self, index: ir.Value, variables: Mapping[int, ir.Value]) -> bool:
        counter = next((number for number, value in variables.items() if value is index), None)
        if counter is None or counter not in self._counters:
            return False
        begin = known_array(self._carried[counter])
        return begin is not None and int(begin) == 0

    def _list(self, number: int, turn: _Turn, ends: Mapping[int, ir.Value]) -> ir.Value:
        """The stack: of all items, or of the last one where each was written in place of the one before."""
        result, items = turn.results[number], ends[number]
        assert result is not None
        assert result.written is not None
        if self._is_counted(result.written.index, turn.variables):
            return filled_up(self._builder, items, self._lists[number])
        begin, end, axis = (self._builder.constant([number], np.int64) for number in (-1, HUGE, 0))
        return filled_up(self._builder, self._builder.op("Slice", items, begin, end, axis), self._lists[number])


def _outside(builder: Builder, tensor: Tensor) -> Tensor:
    """The tensor for use inside: nothing that is made of it there is remembered outside."""
    return Tensor(reserved=tensor.reserved) if tensor.reserved is not None else Tensor(last=channels_last(builder, tensor))


def _given(region: Region, variables: Mapping[int, Tensor]) -> dict[str, Sequence[Tensor]]:
    """By node: the results of the nodes that stand for variables; those of a Switch that lead out of the loop are dead."""
    given: dict[str, Sequence[Tensor]] = {}
    for number, edges in enumerate(region.parameters):
        own = variables[number]
        fresh = Tensor(own.last, reserved=own.reserved)
        for edge in edges:
            given[edge.node] = [*(Tensor(dead=True) for _ in range(edge.index)), fresh]
    return given


def _is_only(index: ir.Value, size: np.ndarray | None) -> bool:
    known = known_array(index)
    return known is not None and size is not None and int(known) == 0 and int(size) == 1


def _dtype(value: ir.Value) -> np.dtype:
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())
