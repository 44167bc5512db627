"""Which convolutions read and write row-major planes, with lanes along the pixels, though others' results lie in blocks of channels.

They are few: what a convolution writes so must be read so by all its readers, or by what hands on such planes to readers that do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import math

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.grouping import Group
from anycann.passes.layout import CONVOLUTIONS, LEAST_PIXELS


def planar_convolutions(
    graph: ir.Graph,
    groups: Mapping[ir.Node, Group],
    gains: Callable[[ir.Node, bool], bool],
    reads: Callable[[ir.Node], bool],
) -> frozenset[ir.Node]:
    """The convolutions that compute planes.

    gains(node, written): whether one would gain by it; written: its result has to be planes in any case. reads(node): whether the kernel
    of another one reads planes as they are.
    """
    finder = _Finder(graph, groups, gains, reads)
    return frozenset(finder.planar)


class _Finder:
    def __init__(
        self, graph: ir.Graph, groups: Mapping[ir.Node, Group], gains: Callable[[ir.Node, bool], bool], reads: Callable[[ir.Node], bool]
    ):
        self._groups, self._gains, self._reads = groups, gains, reads
        self._taken: dict[ir.Value, bool] = {}  # whether all readers of a value take planes
        nodes = list(graph)
        for node in reversed(nodes):
            for value in node.outputs:
                self._taken[value] = all(self._reader_takes(use.node, use.idx) for use in value.uses())
        self.planar: dict[ir.Node, None] = {}
        self._flat: set[ir.Value] = set()  # values of groups that are row-major
        for node in nodes:
            group = groups.get(node)
            if group is None or node is group.nodes[-1]:
                self._decide(node, group)

    def _reader_takes(self, node: ir.Node, operand: int) -> bool:
        """Whether a reader takes planes without a copy, or one that costs nothing."""
        group = self._groups.get(node)
        if group is None or group.alone:
            return True
        anchor = _anchor(group)
        handed_on = all(self._hands_on(value) for value in group.outputs)
        if anchor is None:
            return handed_on
        if anchor is node and operand == 0 and self._reads(node):
            return True
        return operand == 0 and handed_on and self._gains(anchor, self._is_written(group))

    def _hands_on(self, value: ir.Value) -> bool:
        """Whether all readers of a result take planes, or it is so small that a copy costs nothing."""
        type_ = static_type(value)
        small = type_ is not None and math.prod(type_.shape[2:]) < LEAST_PIXELS
        return small or self._taken.get(value, True)

    def _is_written(self, group: Group) -> bool:
        """Whether all that reads the results, if anything does, is no kernel, or one of row-major operands only."""
        readers = [self._groups.get(use.node) for value in group.outputs for use in value.uses()]
        return all(reader is None or reader.alone for reader in readers)

    def _decide(self, node: ir.Node, group: Group | None) -> None:
        """Note whether the results of a node, or of its group, are row-major."""
        outputs = node.outputs if group is None else group.outputs
        inputs = [] if group is None else [value for value in group.inputs if value.const_value is None]
        anchor = None if group is None else _anchor(group)
        flat = group is None or group.alone or all(self._is_flat(value) for value in inputs)
        if anchor is not None and group is not None:
            flat = flat and all(self._hands_on(value) for value in group.outputs) and self._gains(anchor, self._is_written(group))
            if flat:
                self.planar[anchor] = None
        if flat:
            self._flat.update(outputs)

    def _is_flat(self, value: ir.Value) -> bool:
        return value.producer() is None or value in self._flat


def _anchor(group: Group) -> ir.Node | None:
    """The convolution of a group."""
    return next((node for node in group.nodes if node.op_type in CONVOLUTIONS), None)
