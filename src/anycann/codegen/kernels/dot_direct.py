"""Groups of weights whose products with any bytes stay within 16 bits: vpmaddubsw multiplies them as they are, without magnitudes.

255 * 128 is a number of 16 bits: of the two weights that are added, those above zero may sum to 128, those below to -128. Trained weights
are mostly small: three instructions serve 32 products where four do by magnitudes, and where that holds for four, of two groups, five serve
64. Each panel takes its groups in an order of its own, which lies before them: pairs first, then single ones, then magnitudes. Groups of
zeros are left out: of a transposed convolution 4x4 with stride 2 they are 20 of 36, the taps that a place of its windows does not have.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.support.records import dataclass

MOST = 128
# What a group of the input takes with a vector of weights: one of a pair that is multiplied as it is, one alone, one by magnitudes (Zen 3).
PAIR, SINGLE, MAGNITUDES = 1.0, 1.2, 1.36
# Loops of their own pay from so many groups a panel and so large a share of these on: with 0.9 of the groups products of 196 x 64 x 128
# take 0.90 of the time, x 192 0.85; with 0.5 1.02 and 0.98 (Zen 3).
LEAST_DEPTH, LEAST_SHARE = 16, 0.4
_FARTHEST = np.iinfo(np.int32).max  # what the table of a panel holds
_SAMPLE = 4  # panels that tell the share
_ROUNDS = 4
Groups: TypeAlias = npt.NDArray[np.int8]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupOrder:
    """taken: [panels, depth], the groups of each panel in the order in which it takes them. paired, direct, needed: [panels].

    So many of the first are in pairs, so many are multiplied as they are, those in pairs among them, and so many at all.
    """

    taken: Counts
    paired: Counts
    direct: Counts
    needed: Counts


def gains_directly(plan: DotPlan, weights: Groups) -> bool:
    """True if so many groups of the weights [O, C / groups, (kd,) kh, kw] are small that it pays to look for them in each panel."""
    if not plan.magnitudes or plan.depth < LEAST_DEPTH or group_offsets(plan).max() > _FARTHEST:
        return False
    hardest = _sums(_some_panels(plan, weights)).max(-1)
    return float((hardest <= MOST).mean()) >= LEAST_SHARE


def group_time(plan: DotPlan, weights: Groups) -> float:
    """Mean of what groups of the input take with a vector of weights [O, C / groups, (kd,) kh, kw], nothing where these are zeros."""
    if not gains_directly(plan, weights):
        return MAGNITUDES
    order = order_groups(_some_panels(plan, weights))
    paired, direct, needed = (int(count.sum()) for count in (order.paired, order.direct, order.needed))
    return (PAIR * paired + SINGLE * (direct - paired) + MAGNITUDES * (needed - direct)) / order.taken.size


def order_groups(groups: Groups) -> GroupOrder:
    """[panels, depth, columns, 4] -> the order of the groups. All counts are even where the depth is."""
    sums = _sums(groups)
    hardest = sums.max(-1).astype(np.int64)
    depth = hardest.shape[1]
    natural = np.broadcast_to(np.arange(depth), hardest.shape)
    present = hardest > 0
    single = present & (hardest <= MOST)
    partner = np.full(hardest.shape, depth)  # the first group of the pair that a group is in
    for number in range(_ROUNDS):
        key = np.where(single, hardest if number % 2 else natural, depth + MOST)  # neighbours, then those alike
        order = np.argsort(key, axis=1, kind="stable")
        panel, place = np.nonzero(np.take_along_axis(single, order[:, 1::2], 1))
        first, second = order[panel, 2 * place], order[panel, 2 * place + 1]
        fits = (sums[panel, first] <= MOST - sums[panel, second]).all(-1)
        panel, first, second = panel[fits], first[fits], second[fits]
        partner[panel, first] = partner[panel, second] = np.minimum(first, second)
        single[panel, first] = single[panel, second] = False
    paired, singles = (partner < depth).sum(1), single.sum(1)
    rank = np.where(partner < depth, partner, np.where(single, depth, np.where(present, depth + 1, depth + 2)))
    needed = present.sum(1)
    odd = (0, 0) if depth % 2 else (singles % 2, needed % 2)
    return GroupOrder(np.argsort(rank, axis=1, kind="stable"), paired, paired + singles - odd[0], needed + odd[1])


def group_offsets(plan: DotPlan) -> Counts:
    """[depth]: bytes from the first that a pixel reads to each group of its window."""
    planes, rows, parts, groups = plan.runs
    place = [np.arange(count) * step for count, step in zip((rows, parts), plan.shape.dilations[-2:], strict=True)]
    if plan.is_split:
        (row, column), (high, wide) = place, plan.shape.strides[-2:]
        lines = row % high * plan.part_rows + row // high
        column = column % wide * plan.copied_rows * plan.pitch + column // wide
    else:
        lines, column = np.arange(rows) * plan.row_step, place[1]
    pixels = (np.arange(planes) * plan.plane_pixels)[:, None, None] + (lines * plan.pitch)[:, None] + column
    offsets = pixels[..., None] * (plan.channels * plan.nbytes) + np.arange(groups) * GROUP_BYTES
    return offsets.reshape(-1)


def _some_panels(plan: DotPlan, weights: Groups) -> Groups:
    """[panels, depth, columns, 4] of the weights [O, C / groups, (kd,) kh, kw], without what makes no whole group."""
    firsts = np.linspace(0, max(0, len(weights) - plan.width), _SAMPLE).astype(int)
    some = np.stack([np.moveaxis(weights[first : first + plan.width], 1, -1) for first in firsts])
    panels = some.reshape(*some.shape[:2], -1)
    panels = panels[..., : panels.shape[-1] // GROUP_BYTES * GROUP_BYTES]
    return panels.reshape(*panels.shape[:2], -1, GROUP_BYTES).swapaxes(1, 2)


def _sums(groups: Groups) -> npt.NDArray[np.uint8]:
    """[panels, depth, lanes]: magnitudes of the weights that are added in a lane of 16 bits, above zero and below; 255 if they are more."""
    above = np.maximum(groups, 0).view(np.uint8)
    below = np.negative(np.minimum(groups, 0).view(np.uint8))
    pairs = [half[..., 0::2].astype(np.uint16) + half[..., 1::2] for half in (above, below)]
    return np.minimum(np.concatenate(pairs, axis=-1), 255).astype(np.uint8).reshape(*groups.shape[:2], -1)
