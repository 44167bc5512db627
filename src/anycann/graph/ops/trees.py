"""Ensembles of decision trees, as frontends/onnx/tree_tables.py brings those of ai.onnx.ml into tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.routines import Trees
from anycann.te.tensor import Tensor

FILLED = 16  # lists of trees are filled up to a multiple of so many, whole vectors of any target
MOST_FEATURES = 1 << 24  # the places of a task's rows are 32-bit integers


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return [TensorType(dtypes.float32, (inputs[0].shape[0], node.attributes.get_int("target_count", 1)))]


def _by_numpy(
    x: np.ndarray,
    features: np.ndarray,
    thresholds: np.ndarray,
    children: np.ndarray,
    entries: np.ndarray,
    roots: np.ndarray,
    depths: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    tree_count: int = 1,
    target_count: int = 1,
) -> np.ndarray:
    """Tree by tree, all rows a level at a time."""
    result = np.zeros((len(x), target_count), np.float32)
    rows = np.arange(len(x))
    for root, depth in zip(roots[:tree_count], depths[:tree_count], strict=True):
        place = np.full(len(x), root)
        for _ in range(depth):
            feature = features[place]
            value = x[rows, np.where(feature < 0, ~feature, feature)]
            chosen = (value <= thresholds[place]) | (np.isnan(value) & (feature < 0))
            place = children[place] + np.where(chosen, 0, 1)
        for target, weight in zip(targets[entries[place]].T, weights[entries[place]].T, strict=True):
            result[rows, target] += weight
    return result


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for rows, features, trees, targets, width, missing in (
        (1, 3, 5, 1, 1, False),
        (7, 4, 40, 3, 3, False),
        (41, 2, 3, 1, 1, True),
        (130, 5, 17, 4, 2, True),
    ):
        x = rng.integers(-4, 5, (rows, features)).astype(np.float32)
        x[rng.random(x.shape) < 0.1] = np.nan
        tables = _random_trees(rng, features, trees, targets, width, missing)
        yield Sample((x, *tables), {"tree_count": trees, "target_count": targets}, tuple(range(1, 9)))


def _random_trees(rng: np.random.Generator, features: int, trees: int, targets: int, width: int, missing: bool) -> tuple[np.ndarray, ...]:
    """Trees of up to five levels; the last node is the leaf of the trees that fill up the lists."""
    nodes: list[list[float]] = []  # feature, threshold, child, entry
    roots, depths, leaves = [], [], 0
    for _ in range(trees):
        depth = int(rng.integers(0, 6))
        roots.append(len(nodes))
        depths.append(depth)
        nodes.append([])
        level = [roots[-1]]
        for _ in range(depth):
            inner = [place for place in level if rng.random() < 0.8 or place == level[0]]
            for place in level:
                if place not in inner:
                    nodes[place] = [0, np.nan, place - 1, leaves]
                    leaves += 1
            level = []
            for place in inner:
                feature = int(rng.integers(0, features))
                nodes[place] = [~feature if missing and rng.random() < 0.5 else feature, float(rng.integers(-4, 5)), len(nodes), 0]
                level += [len(nodes), len(nodes) + 1]
                nodes += [[], []]
        for place in level:
            nodes[place] = [0, np.nan, place - 1, leaves]
            leaves += 1
    nodes.append([0, np.nan, len(nodes) - 1, leaves])
    leaves += 1
    fill = -len(roots) % FILLED
    lists = [np.array([*roots, *[len(nodes) - 1] * fill], np.int32), np.array([*depths, *[0] * fill], np.int32)]
    table = np.array(nodes, np.float64)
    to, weights = rng.integers(0, targets, (leaves, width)).astype(np.int32), rng.uniform(-1, 1, (leaves, width)).astype(np.float32)
    weights[-1] = 0
    whole = [table[:, 0].astype(np.int32), table[:, 1].astype(np.float32), *(table[:, n].astype(np.int32) for n in (2, 3))]
    return (*whole, *lists, to, weights)


@operator("TreeEnsemble", domain=DOMAIN, samples=_samples, infer=_infer, reference=_by_numpy)
def tree_ensemble(context: Lowering) -> Tensor:
    """The weights of the leaves that each row reaches, added up by target; the tables are those of codegen/kernels/trees.py."""
    x, targets = context.operand(0), context.integer("target_count", 1)
    if x.dtype is not dtypes.float32 or x.rank != 2 or x.size == 0:
        raise NotLowered(f"trees for {x.dtype} of rank {x.rank}")
    tables = [table for number in range(1, 9) if (table := context.constant(number)) is not None]
    if not _fit_together(tables) or x.shape[1] > MOST_FEATURES:
        raise NotLowered(f"tables {[f'{table.dtype}{list(table.shape)}' for table in tables]} for {x.shape[1]} features")
    if not _lead_nowhere_else(tables, x.shape[1], targets, context.integer("tree_count", 1)):
        raise NotLowered(f"tables that lead out of themselves, or ask for more than the {x.shape[1]} features there are")
    features = tables[0]
    operands = [context.operand(number) for number in range(1, 9)]
    work = Trees(0, x, tuple(operands), context.integer("tree_count", 1), bool((features < 0).any()), targets)
    return te.contraction(work, (x.shape[0], targets), dtypes.float32)


def _fit_together(tables: Sequence[np.ndarray]) -> bool:
    """Whether the tables have the types that a kernel reads, and what belongs to one node, tree or leaf is in as many places."""
    if [table.dtype.name for table in tables] != ["int32", "float32", *["int32"] * 5, "float32"]:
        return False
    nodes, trees, leaves = tables[:4], tables[4:6], tables[6:]
    alike = all(len({table.shape for table in part}) == 1 for part in (nodes, trees, leaves))
    return alike and (nodes[0].ndim, trees[0].ndim, leaves[0].ndim) == (1, 1, 2) and all(table.size for table in tables)


def _lead_nowhere_else(tables: Sequence[np.ndarray], columns: int, targets: int, trees: int) -> bool:
    """Whether a kernel reads and writes nothing but the tables, the columns of a row and the targets."""
    features, thresholds, children, entries, roots, _, places, _ = tables
    stays = np.isnan(thresholds) & (features >= 0)  # a leaf, which never goes to its child
    ranges = (
        (np.where(features < 0, ~features, features), columns),
        (np.where(stays, 0, children), len(children) - 1),
        (children + 1, len(children)),
        (entries, len(places)),
        (roots, len(children)),
        (places, targets),
    )
    whole = len(roots) % FILLED == 0 and 0 < trees <= len(roots)
    return whole and all(table.min() >= 0 and table.max() < limit for table, limit in ranges)
