"""Decision trees: lanes are rows that go down one tree, or trees that one row goes down, a level at a time by gathers.

A node is `threshold`, `feature` and the number of its `child`, behind which the other child lies: x[feature] <= threshold goes to the
child, everything else to the other. A leaf's threshold is no number and its child is the node before it, so that whoever is there stays.
All rows of a task go down a tree before the next one, so that its nodes are in the cache; few rows have trees for lanes. Lists of trees
are filled up to whole vectors of any target, with trees that are one leaf worth nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target

_BLOCK = 64  # rows of a task
_SIDE_BY_SIDE = 2  # vectors of rows that go down a tree together


@dataclass(frozen=True)
class TreesProblem:
    """x [rows, features] goes down `trees` trees; the leaves' entries of `width` (target, weight) add up in the result [rows, targets].

    missing: whether nodes whose feature is given as ~feature send what is no number to their child.
    """

    rows: int
    features: int
    targets: int
    trees: int
    width: int
    missing: bool


@dataclass(frozen=True)
class TreePointers:
    """Nodes: features, thresholds, children, entries (of a leaf, in the lists of targets and weights). Trees: roots, depths."""

    x: Value
    features: Value
    thresholds: Value
    children: Value
    entries: Value
    roots: Value
    depths: Value
    targets: Value
    weights: Value


def emit_trees(e: Emitter, problem: TreesProblem, target: Target, at: TreePointers, result: Value) -> int:
    """Write the loop over tasks; the answer is how many there are."""
    walk = _Walk(e, problem, target.lanes, at)
    block = _BLOCK if problem.rows >= target.lanes else 1
    with e.loop(e.begin, e.end) as task:
        first = e.mul(task.index, block)
        count = e.smin(e.sub(e.const(problem.rows), first), e.const(block))
        to = e.gep(result, e.mul(first, problem.targets), "float")
        with e.loop(0, e.mul(count, problem.targets)) as element:
            e.store(e.const(0.0, "float"), e.gep(to, element.index, "float"), 4)
        x = e.gep(at.x, e.mul(first, problem.features), "float")
        if block == 1:
            walk.trees_of_a_row(x, to)
        else:
            walk.rows_by_tree(x, count, to)
    return -(-problem.rows // block)


def scratch_bytes(target: Target) -> int:
    """The leaves of the vectors that go down together."""
    return 4 * target.lanes * _SIDE_BY_SIDE


class _Walk:
    """The code of one task."""

    def __init__(self, e: Emitter, problem: TreesProblem, lanes: int, at: TreePointers):
        self.e, self.problem, self.lanes, self.at = e, problem, lanes, at
        self._int = vector_type("i32", lanes)

    def rows_by_tree(self, x: Value, count: Value, to: Value) -> None:
        """Tree by tree: all rows from `x` on, `count`, which go to the rows of the result `to`."""
        e, together = self.e, self.lanes * _SIDE_BY_SIDE
        last = e.splat(e.cast("trunc", e.sub(count, 1), "i32"), self.lanes)
        with e.loop(0, self.problem.trees) as tree:
            root = e.splat(e.load(e.gep(self.at.roots, tree.index, "i32"), "i32", 4), self.lanes)
            depth = e.load(e.gep(self.at.depths, tree.index, "i32"), "i32", 4)
            with e.loop(0, count, together) as first:
                lines = []
                for number in range(_SIDE_BY_SIDE):
                    start = e.splat(e.cast("trunc", e.add(first.index, number * self.lanes), "i32"), self.lanes)
                    row = e.smin(e.binary("add", start, e.lane_numbers(self.lanes, "i32")), last)
                    lines.append(e.binary("mul", row, e.const(self.problem.features, self._int)))
                self._keep(self._leaves(x, lines, [root] * _SIDE_BY_SIDE, depth))
                with e.loop(0, e.smin(e.sub(count, first.index), e.const(together))) as lane:
                    self._add(lane.index, e.gep(to, e.mul(e.add(first.index, lane.index), self.problem.targets), "float"))

    def trees_of_a_row(self, x: Value, to: Value) -> None:
        """Vector by vector of trees, for the row at `x`; the trees that fill up the last vector change nothing."""
        e = self.e
        with e.loop(0, -(-self.problem.trees // self.lanes) * self.lanes, self.lanes) as first:
            roots, depths = (e.load(e.gep(table, first.index, "i32"), self._int, 4) for table in (self.at.roots, self.at.depths))
            self._keep(self._leaves(x, [e.zero(self._int)], [roots], e.reduce("smax", depths)))
            with e.loop(0, self.lanes) as lane:
                self._add(lane.index, to)

    def _leaves(self, x: Value, lines: Sequence[Value], roots: Sequence[Value], depth: Value) -> list[Value]:
        """Where each lane ends that begins at a root, its row of x at `lines`."""
        e = self.e
        with e.loop(0, e.cast("sext", depth, "i64"), carried=roots) as level:
            level.carry([self._step(x, line, node) for line, node in zip(lines, level.values, strict=True)])
        return level.values

    def _step(self, x: Value, line: Value, node: Value) -> Value:
        e = self.e
        feature = e.gather(self.at.features, node, "i32", 4)
        missing = e.compare("slt", feature, e.zero(self._int))
        if self.problem.missing:
            feature = e.binary("xor", feature, e.binary("ashr", feature, e.const(31, self._int)))
        value = e.gather(x, e.binary("add", line, feature), "float", 4)
        chosen = e.compare("ole", value, e.gather(self.at.thresholds, node, "float", 4))
        if self.problem.missing:
            chosen = e.binary("or", chosen, e.binary("and", missing, e.compare("uno", value, value)))
        child = e.gather(self.at.children, node, "i32", 4)
        return e.select(chosen, child, e.binary("add", child, e.const(1, self._int)))

    # ---- what leaves are worth
    def _keep(self, leaves: Sequence[Value]) -> None:
        for number, leaf in enumerate(leaves):
            self.e.store(leaf, self.e.gep(self.e.scratch, number * self.lanes, "i32"), 4)

    def _add(self, lane: Value, to: Value) -> None:
        """Add the entries of the leaf of a lane to a row of the result."""
        e, width = self.e, self.problem.width
        leaf = e.cast("sext", e.load(e.gep(e.scratch, lane, "i32"), "i32", 4), "i64")
        entry = e.mul(e.cast("sext", e.load(e.gep(self.at.entries, leaf, "i32"), "i32", 4), "i64"), width)
        with e.loop(0, width) as number:
            place = e.add(entry, number.index)
            target = e.cast("sext", e.load(e.gep(self.at.targets, place, "i32"), "i32", 4), "i64")
            there, weight = e.gep(to, target, "float"), e.load(e.gep(self.at.weights, place, "float"), "float", 4)
            e.store(e.binary("fadd", e.load(there, "float", 4), weight), there, 4)
