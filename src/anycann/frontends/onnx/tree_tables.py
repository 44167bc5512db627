"""Trees of ai.onnx.ml, which are lists of nodes with numbers, as the tables of `anycann.TreeEnsemble`.

Every test becomes x <= threshold: x < t is x <= the number below t, and x >= t is that with the children changed about. Nodes are in the
order of their trees, and within a tree level by level, so that the two children of a node lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anycann.graph.ops.trees import FILLED
from anycann.support.errors import ModelError
from anycann.support.records import dataclass

LEAF = "LEAF"
BELOW, SWAPPED = ("BRANCH_LT", "BRANCH_GTE"), ("BRANCH_GT", "BRANCH_GTE")
MODES = ("BRANCH_LEQ", *BELOW, "BRANCH_GT", LEAF)


@dataclass(frozen=True)
class Nodes:
    """Nodes by number; those of a leaf say nothing else. `missing`: what is no number counts as true."""

    roots: np.ndarray
    modes: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    when_true: np.ndarray
    when_false: np.ndarray
    missing: np.ndarray


@dataclass(frozen=True)
class Entries:
    """What leaves are worth: node number, target and weight of each entry."""

    nodes: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


def tables(nodes: Nodes, entries: Entries) -> Sequence[np.ndarray]:
    """Operands 1 to 8 of `anycann.TreeEnsemble`. Raises ModelError for nodes that are no trees."""
    is_leaf = nodes.modes == LEAF
    swapped = np.isin(nodes.modes, SWAPPED)
    child, other = np.where(swapped, nodes.when_false, nodes.when_true), np.where(swapped, nodes.when_true, nodes.when_false)
    below = np.nextafter(nodes.thresholds, np.float32(-np.inf))
    thresholds = _without_denormals(np.where(np.isin(nodes.modes, BELOW), below, nodes.thresholds))
    to_child = (nodes.missing.astype(bool) != swapped) & ~is_leaf
    places, depths = _ordered(nodes.roots, is_leaf, child, other)
    number = np.full(len(nodes.modes), -1, np.int64)
    number[places] = np.arange(len(places))
    leaf = is_leaf[places]
    features = np.where(to_child[places], ~nodes.features[places], nodes.features[places])
    children = np.where(leaf, np.arange(len(places)) - 1, number[child[places]])
    lists = _entries(entries, number, leaf)
    fill = -len(nodes.roots) % FILLED
    return (
        np.append(np.where(leaf, 0, features), 0).astype(np.int32),
        np.append(np.where(leaf, np.nan, thresholds[places]), np.nan).astype(np.float32),
        np.append(children, len(places) - 1).astype(np.int32),
        lists[0],
        np.append(number[nodes.roots], [len(places)] * fill).astype(np.int32),
        np.append(depths, [0] * fill).astype(np.int32),
        *lists[1:],
    )


def _without_denormals(thresholds: np.ndarray) -> np.ndarray:
    """Kernels take denormal numbers for zero, which is not below the negative ones."""
    least = np.finfo(np.float32).tiny
    return np.where(np.abs(thresholds) < least, np.where(thresholds < 0, -least, np.float32(0)), thresholds)


def _ordered(roots: np.ndarray, is_leaf: np.ndarray, child: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the numbers of all nodes in their new order, the depth of each tree)."""
    if not len(roots):
        raise ModelError("no node is the root of a tree: each is a child of another one")
    level, trees = roots, np.arange(len(roots))
    found, owners, depths, count = [level], [trees], np.zeros(len(roots), np.int64), len(roots)
    while len(level):
        inner = ~is_leaf[level]
        level, trees = np.stack([child[level[inner]], other[level[inner]]], axis=1).reshape(-1), np.repeat(trees[inner], 2)
        depths[np.unique(trees)] += 1
        count += len(level)
        if count > len(is_leaf):
            raise ModelError(f"{count} nodes are reached from the roots of trees of {len(is_leaf)}: two nodes have the same child")
        found.append(level)
        owners.append(trees)
    places = np.concatenate(found)
    if len(np.unique(places)) != len(places):
        raise ModelError("two nodes have the same child")
    return places[np.argsort(np.concatenate(owners), kind="stable")], depths


def _entries(entries: Entries, number: np.ndarray, leaf: np.ndarray) -> Sequence[np.ndarray]:
    """(the entry of each node, targets and weights of each entry), which all have as many as the richest; the last one is worth nothing."""
    nodes = number[entries.nodes]
    (kept,) = np.nonzero((nodes >= 0) & leaf[nodes])  # what stands at a test counts for nothing, and where no row comes
    order = kept[np.argsort(nodes[kept], kind="stable")]
    nodes = nodes[order]
    rank = np.zeros(len(leaf) + 1, np.int64)
    rank[:-1] = np.cumsum(leaf) - 1
    rank[-1] = count = int(leaf.sum())
    within = np.arange(len(nodes)) - np.searchsorted(nodes, nodes)
    width = int(within.max(initial=0)) + 1
    targets, weights = np.zeros((count + 1, width), np.int32), np.zeros((count + 1, width), np.float32)
    targets[rank[nodes], within] = entries.targets[order]
    weights[rank[nodes], within] = entries.weights[order]
    return np.maximum(rank, 0).astype(np.int32), targets, weights
