"""Where every value of static shape lies: input, output, arena or constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from anycann.assembly.kernels import KernelMaker
from anycann.assembly.weights import Weights
from anycann.graph.registry import static_type
from anycann.om.plan import Buffer, Location, TensorSpec
from anycann.passes.aliases import Aliases
from anycann.passes.in_place import write_in_place
from anycann.passes.memory import Interval, plan_memory
from anycann.passes.order import Unit
from anycann.passes.partition import AICORE, VIEW, captured_values
from anycann.te.layout import ND, element_count


class Placement:
    """Buffers for the values of one graph, planned when it is made; `deferred` nodes run after all units.

    values: locations by name. intervals: what the memory planner was asked.
    """

    def __init__(
        self,
        graph: ir.Graph,
        units: Sequence[Unit],
        deferred: Sequence[ir.Node],
        layouts: Mapping[ir.Value, str],
        aliases: Aliases,
        kernels: KernelMaker,
        weights: Weights,
        lanes: int,
    ):
        self._graph, self._units, self._deferred = graph, units, deferred
        self._layouts, self._kernels, self._weights, self._lanes = layouts, kernels, weights, lanes
        self.aliases = aliases
        self.values: dict[str, Location] = {}
        self.intervals: list[Interval] = []
        self._write_in_place()
        self.arena_bytes = self._place()

    def buffer(self, value: ir.Value) -> Buffer:
        """Where a value lies; a known one is put among the constants."""
        if value.const_value is not None:
            return self._weights.buffer(value)
        alias = self.aliases.of.get(value)
        if alias is None:
            return self.values[value.name or ""].buffer
        whole = self.buffer(alias.root)
        return replace(whole, offset_bytes=whole.offset_bytes + alias.offset_bytes, nbytes=self._nbytes(value))

    def locate(self, value: ir.Value, buffer: Buffer) -> None:
        """Note where a value of static type lies."""
        type_ = static_type(value)
        assert type_ is not None
        spec = TensorSpec(value.name or "", type_.dtype.name, type_.shape)
        self.values[spec.name] = Location(spec, buffer, self._layouts.get(value, ND))

    def _nbytes(self, value: ir.Value) -> int:
        return stored_bytes(value, self._layouts, self._lanes)

    def _place(self) -> int:
        """Give every static value its buffer; answers the size of the arena."""
        outputs = {value: n for n, value in reversed(list(enumerate(self._graph.outputs)))}
        for number, value in enumerate(self._graph.inputs):
            if static_type(value) is not None:
                self.locate(value, Buffer("input", 0, self._nbytes(value), number))
        intervals = self._intervals(outputs)
        work = [
            Interval(name, nbytes, n, n)
            for n, unit in enumerate(self._units)
            if unit.group in self._kernels.workspaces
            for name, nbytes in self._kernels.workspaces[unit.group]
        ]
        self.intervals = [*intervals.values(), *work]
        plan = plan_memory(self.intervals)
        self._kernels.buffers |= {each.name: Buffer("arena", plan.offsets[each.name], each.nbytes) for each in work}
        for unit in self._units:
            for value in (v for node in unit.nodes for v in node.outputs):
                if value in outputs and static_type(value) is not None:
                    self.locate(value, Buffer("output", 0, self._nbytes(value), outputs[value]))
                elif value in intervals:
                    self.locate(value, Buffer("arena", plan.offsets[intervals[value].name], self._nbytes(value)))
        for value in self.aliases.of:
            if static_type(value) is not None:
                self.locate(value, self.buffer(value))
        return plan.arena_bytes

    def _write_in_place(self) -> None:
        """Let results lie where an operand that dies did."""
        made = {v for unit in self._units if unit.kind == AICORE for node in unit.nodes for v in node.outputs} - set(self._graph.outputs)

        def same_storage(a: ir.Value, b: ir.Value) -> bool:
            return a.dtype == b.dtype and self._nbytes(a) == self._nbytes(b) and self._layouts.get(a) == self._layouts.get(b)

        last = self._last_uses()
        self.aliases = write_in_place(self._units, self.aliases, self._kernels.reads, last, same_storage, made.__contains__)

    def _last_uses(self) -> dict[ir.Value, int]:
        """Number of the last unit that reads each buffer."""
        last = {self.aliases.find(used).root: number for number, unit in enumerate(self._units) for used in unit.inputs}
        late = (value for node in self._deferred for value in (*node.inputs, *captured_values(node)) if value is not None)
        return last | {self.aliases.find(value).root: len(self._units) for value in late}

    def _intervals(self, outputs: Mapping[ir.Value, int]) -> dict[ir.Value, Interval]:
        first: dict[ir.Value, int] = {}
        last = self._last_uses()
        for number, unit in enumerate(self._units):
            made = unit.group.outputs if unit.group is not None else [] if unit.kind == VIEW else list(unit.nodes[0].outputs)
            for value in made if unit not in self.aliases.slices else ():
                root = self.aliases.find(value).root
                if static_type(root) is not None and root not in outputs:
                    first.setdefault(root, number)
        return {v: Interval(v.name or "", self._nbytes(v), start, max(start, last.get(v, start))) for v, start in first.items()}


def stored_bytes(value: ir.Value, layouts: Mapping[ir.Value, str], lanes: int) -> int:
    """Bytes of a value of static type, in its layout."""
    type_ = static_type(value)
    assert type_ is not None
    return element_count(layouts.get(value, ND), type_.shape, lanes) * type_.dtype.nbytes
