"""Values that need no buffer of their own: views, transposes that move nothing, parts of a concatenation, and contiguous slices lie inside
another value's buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import math

import onnx_ir as ir

from anycann.graph.registry import TensorType, static_type
from anycann.passes.order import Unit
from anycann.passes.partition import AICORE, VIEW
from anycann.support.records import dataclass
from anycann.te.layout import NC1HWC0, ND, NHWC, memory_order, physical_shape


@dataclass(frozen=True)
class Alias:
    """A value that begins `offset_bytes` into the buffer of `root`."""

    root: ir.Value
    offset_bytes: int = 0


@dataclass(frozen=True)
class Aliases:
    """What lies where: `of` by value (never chained), and the units that need no kernel because their result is a slice in place."""

    of: Mapping[ir.Value, Alias]
    slices: frozenset[Unit]

    def find(self, value: ir.Value) -> Alias:
        """The value's own buffer if it has one."""
        return self.of.get(value, Alias(value))

    def lies_at(self, value: ir.Value, whole: ir.Value, offset_bytes: int) -> bool:
        """Whether the value is kept right there in another one's memory, so that nothing need be copied."""
        alias, outer = self.find(value), self.find(whole)
        return value in self.of and alias.root is outer.root and alias.offset_bytes == outer.offset_bytes + offset_bytes


def find_aliases(units: Sequence[Unit], layouts: Mapping[ir.Value, str], graph: ir.Graph, lanes: int) -> Aliases:
    """Views alias their operand; operands of a concatenation the result, and slices their operand, where elements are contiguous.

    A Transpose between layouts that undoes what their orders differ in aliases its operand too. What an output of the graph is a copy of
    lies in the output.
    """
    finder = _Finder(layouts, frozenset(graph.outputs), frozenset(graph.inputs), lanes)
    slices = set()
    for unit in units:
        if unit.kind == VIEW:
            source = unit.nodes[0].inputs[0]
            assert source is not None
            finder.found[unit.nodes[0].outputs[0]] = Alias(source)
        elif unit.kind == AICORE and len(unit.nodes) == 1 and (finder.slices(unit.nodes[0]) or finder.moves_nothing(unit.nodes[0])):
            slices.add(unit)
    made = {value for unit in units if unit.kind == AICORE and unit not in slices for node in unit.nodes for value in node.outputs}
    for unit in units:
        if unit.kind == AICORE and _is_concat(unit.nodes[0]):
            finder.concatenation(unit.nodes[0], made)
    slices |= {unit for unit in units if unit.kind == AICORE and len(unit.nodes) == 1 and finder.output(unit.nodes[0], made)}
    return Aliases({value: finder.resolve(value) for value in finder.found}, frozenset(slices))


def _is_concat(node: ir.Node) -> bool:
    return node.op_type == "Concat" and node.domain == ""


@dataclass
class _Finder:
    layouts: Mapping[ir.Value, str]
    outputs: frozenset[ir.Value]
    inputs: frozenset[ir.Value]
    lanes: int

    def __post_init__(self) -> None:
        self.found: dict[ir.Value, Alias] = {}

    def resolve(self, value: ir.Value) -> Alias:
        """Follow aliases of aliases."""
        offset = 0
        while value in self.found:
            alias = self.found[value]
            value, offset = alias.root, offset + alias.offset_bytes
        return Alias(value, offset)

    def concatenation(self, node: ir.Node, made: set[ir.Value]) -> None:
        """Let producers write straight into the result."""
        result, type_ = node.outputs[0], static_type(node.outputs[0])
        assert type_ is not None
        if result in self.outputs:
            return
        axis = node.attributes["axis"].as_int() % len(type_.shape)
        start = 0
        for value in node.inputs:
            part = None if value is None else static_type(value)
            assert value is not None
            assert part is not None
            last = start + part.shape[axis] == type_.shape[axis]
            once = sum(other is value for other in node.inputs) == 1
            free = value in made and value not in self.found and value not in self.outputs and once
            if free and 0 not in part.shape and self._inside(value, part, result, type_, axis, start, last):
                self.found[value] = Alias(result, self._offset(result, type_, axis, start))
            start += part.shape[axis]

    def slices(self, node: ir.Node) -> bool:
        """Split, or a Slice of one axis with step 1: True if every used result can stay inside the operand."""
        source, cuts = self._kept(node), _cuts(node)
        type_ = None if source is None else static_type(source)
        if source is None or type_ is None or cuts is None:
            return False
        axis, starts = cuts
        for value, start in zip(node.outputs, starts, strict=True):
            part = static_type(value)
            if part is None or value in self.outputs or not math.prod(part.shape):
                return False
            if not self._inside(value, part, source, type_, axis, start, start + part.shape[axis] == type_.shape[axis]):
                return False
        for value, start in zip(node.outputs, starts, strict=True):
            self.found[value] = Alias(source, self._offset(source, type_, axis, start))
        return True

    def moves_nothing(self, node: ir.Node) -> bool:
        """True for a Transpose or TransData whose result has its elements in the operand's order: it stays in the operand."""
        source, result = self._kept(node), node.outputs[0]
        if source is None or result in self.outputs or not self._same_order(node, source):
            return False
        self.found[result] = Alias(source)
        return True

    def output(self, node: ir.Node, made: set[ir.Value]) -> bool:
        """True for such a node whose result is an output of the graph, if the whole of what it copies can be made right there."""
        source, result = self._kept(node), node.outputs[0]
        if source is None or result not in self.outputs or not self._same_order(node, source):
            return False
        alias = self.resolve(source)
        root, type_, whole = alias.root, static_type(result), static_type(alias.root)
        if root not in made or root in self.outputs or self.layouts.get(root) == NC1HWC0 or alias.offset_bytes:
            return False
        if type_ is None or whole is None or type_.dtype is not whole.dtype or math.prod(type_.shape) != math.prod(whole.shape):
            return False
        self.found[root] = Alias(result)
        return True

    def _same_order(self, node: ir.Node, source: ir.Value) -> bool:
        """Whether a node only gives its elements another order, of which memory shows nothing."""
        result, order = node.outputs[0], _axis_order(node)
        before, after = static_type(source), static_type(result)
        if order is None or before is None or after is None or before.dtype is not after.dtype:
            return False
        layouts = self.layouts.get(source, ND), self.layouts.get(result, ND)
        if NC1HWC0 in layouts:
            return False
        rank = len(before.shape)
        read = [axis for axis in memory_order(layouts[0], rank) if before.shape[axis] != 1]
        return read == [order[axis] for axis in memory_order(layouts[1], rank) if after.shape[axis] != 1]

    def _kept(self, node: ir.Node) -> ir.Value | None:
        """The first operand, if it lies in memory of this program that may have other names."""
        source = node.inputs[0] if node.inputs else None
        if source is None or source in self.inputs or source.const_value is not None or self.resolve(source).root in self.inputs:
            return None
        return source

    def _inside(self, value: ir.Value, part: TensorType, whole: ir.Value, type_: TensorType, axis: int, start: int, last: bool) -> bool:
        """True if the part's elements lie in one run of the whole's buffer, at a place where a buffer may begin."""
        layout = self.layouts.get(whole, ND)
        if self.layouts.get(value, ND) != layout or part.dtype is not type_.dtype:
            return False
        if layout == NC1HWC0 and axis == 1 and (start % self.lanes or (part.shape[1] % self.lanes and not last)):
            return False
        before = physical_shape(layout, type_.shape, self.lanes)[: _memory_axis(layout, type_, axis)]
        return all(extent == 1 for extent in before) and self._offset(whole, type_, axis, start) % 64 == 0

    def _offset(self, whole: ir.Value, type_: TensorType, axis: int, start: int) -> int:
        return part_offset(self.layouts.get(whole, ND), type_, axis, start, self.lanes)


def part_offset(layout: str, whole: TensorType, axis: int, start: int, lanes: int) -> int:
    """Bytes from the beginning of a buffer to its element `start` of an axis."""
    steps = start // lanes if layout == NC1HWC0 and axis == 1 else start
    return steps * math.prod(physical_shape(layout, whole.shape, lanes)[_memory_axis(layout, whole, axis) + 1 :]) * whole.dtype.nbytes


def _memory_axis(layout: str, whole: TensorType, axis: int) -> int:
    """The place of an axis in memory order."""
    if layout != NHWC or axis == 0:
        return axis
    return len(whole.shape) - 1 if axis == 1 else axis - 1


def _axis_order(node: ir.Node) -> Sequence[int] | None:
    """The axes of the operand in the order of the result's; None for what does more than to put them in order."""
    type_ = static_type(node.inputs[0]) if node.inputs else None
    if type_ is None:
        return None
    if (node.domain, node.op_type) == ("anycann", "TransData"):
        return range(len(type_.shape))
    if (node.domain, node.op_type) == ("", "Transpose"):
        return node.attributes.get_ints("perm", tuple(reversed(range(len(type_.shape)))))
    return None


def _cuts(node: ir.Node) -> tuple[int, list[int]] | None:
    """The axis and where each output starts on it; None for anything but a Split or a Slice of one axis."""
    type_ = static_type(node.inputs[0])
    parts = [static_type(value) for value in node.outputs]
    if node.domain != "" or type_ is None or any(part is None for part in parts):
        return None
    if node.op_type == "Split":
        axis = node.attributes.get_int("axis", 0) % len(type_.shape)
        starts = [0]
        for part in parts[:-1]:
            starts.append(starts[-1] + (part.shape[axis] if part is not None else 0))
        return axis, starts
    if node.op_type == "Slice":
        return _slice_cut(node, type_, parts[0])
    return None


def _slice_cut(node: ir.Node, type_: TensorType, part: TensorType | None) -> tuple[int, list[int]] | None:
    operands = [None if v is None or v.const_value is None else v.const_value.numpy().reshape(-1).tolist() for v in node.inputs[1:]]
    if part is None or len(operands) < 2 or operands[0] is None:
        return None
    starts = operands[0]
    axes = operands[2] if len(operands) > 2 and operands[2] is not None else list(range(len(starts)))
    steps = operands[3] if len(operands) > 3 and operands[3] is not None else [1] * len(starts)
    changed = [n for n, axis in enumerate(axes) if part.shape[axis] != type_.shape[axis]]
    if len(changed) != 1 or any(step != 1 for step in steps):
        return None
    axis = axes[changed[0]] % len(type_.shape)
    start = starts[changed[0]]
    return axis, [max(0, start + type_.shape[axis]) if start < 0 else min(start, type_.shape[axis])]
