"""Which kernels run one after the other over bands of rows (codegen/bands.py), so that what lies between them need not leave the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from anycann.assembly.kernels import KernelMaker, Launch
from anycann.codegen.bands import in_bands
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.arithmetic_rate import fma_rate
from anycann.passes.grouping import Group
from anycann.passes.order import Unit
from anycann.passes.partition import AICORE
from anycann.target.target import Target

Launches = Mapping[Unit, list[Launch]]

# Measured with bands of rows through three convolutions that widen, filter each channel and narrow again, 2 MiB of second-level cache: with
# 4.6 MB between them 0.77 to 0.80 of the time, with 1.7 MB 0.87 to 0.97, with 0.6 MB 1.03 to 1.09. Whole networks: a half of the cache is
# better than a quarter, 3/4 or all of it.
_STAYS = 1 / 2  # of the second-level cache: what is smaller is still there when its reader runs
_WEIGHTS = 1 / 4  # the weights of a chain, which every band reads again
_BAND = 1 / 4  # what lies between the kernels of a band
_LEAST_BANDS = 16  # threads get as many each, but for one
# Bytes a cycle from behind that cache, and the share of the arithmetic that moving has to take to be seen: products of 1x1 convolutions of
# ResNet-50, of which it takes 0.25, gain nothing.
_BEYOND_L2_RATE, _WAITS = 8.0, 0.3
# With 16 registers the same arithmetic takes twice as long and hides what moves meanwhile: it has to take longer than that. Bytes a cycle
# from the third-level cache, and from memory what is beyond so many times the second. Bands cost calls of few rows, and rows that two
# threads both compute: behind a product, with 0.4 to 2.4 MB in between, a filter of 3 x 3 takes 0.92 to 1.0 of the time apart with one
# thread and 0.83 to 0.96 with two, of 5 x 5 0.94 to 1.0 and 0.75 to 0.95 (Zen 3, 512 KiB). With stride 2 bands pay from 1.5 MB on: with
# 39 MB what is apart takes 1.06 and 1.2.
_NEAR_RATE, _FAR_RATE, _FAR = 20.0, 5.0, 8
_LEAST = 3  # times the second-level cache


def join_in_bands(
    units: Sequence[Unit], launches: Launches, kernels: KernelMaker, target: Target, nbytes: Callable[[ir.Value], int]
) -> tuple[list[Unit], dict[Unit, list[Launch]]]:
    """The units and their launches, with neighbours made one where that pays. `nbytes`: bytes of a stored value."""
    joined, found = list[Unit](), dict(launches)
    for chain in _chains(units, launches, kernels, target, nbytes):
        if len(chain) == 1:
            joined.append(chain[0])
            continue
        unit, launch = _one(chain, launches, kernels, target, nbytes)
        for part in chain:
            del found[part]
        joined.append(unit)
        found[unit] = [launch]
    kernels.keep_only(launch.kernel.symbol for some in found.values() for launch in some)
    return joined, found


def _chains(
    units: Sequence[Unit], launches: Launches, kernels: KernelMaker, target: Target, nbytes: Callable[[ir.Value], int]
) -> list[list[Unit]]:
    """The units in their order, neighbours that are worth joining together."""
    chains: list[list[Unit]] = []
    for unit in units:
        if chains and _follows(chains[-1], unit, launches, kernels, target, nbytes):
            chains[-1].append(unit)
        else:
            chains.append([unit])
    return chains


def _follows(
    chain: Sequence[Unit], unit: Unit, launches: Launches, kernels: KernelMaker, target: Target, nbytes: Callable[[ir.Value], int]
) -> bool:
    """True if the unit reads, row by row and as its first argument alone, what the chain leaves, and that is too large to stay."""
    before, after = (_row_kernel(launches.get(each, [])) for each in (chain[-1], unit))
    if before is None or after is None or before.rows is None or after.rows is None or before.rows.rows != after.rows.in_rows:
        return False
    made = {value.name: value for part in chain for value in (part.group.outputs if part.group is not None else [])}
    between, *others = after.arguments
    if between not in launches[chain[-1]][0].outputs or any(name in made for name in others):
        return False
    arguments = {name for part in (*chain, unit) for name in launches[part][0].kernel.arguments}
    weights = sum(buffer.nbytes for name, buffer in kernels.buffers.items() if name in arguments)
    size, cycles = nbytes(made[between]), min(before.flops, after.flops) / (2 * target.lanes * fma_rate(target))
    return weights <= _WEIGHTS * target.l2_bytes and _is_seen(size, cycles, target, in_bands=len(chain) > 1)


def _is_seen(nbytes: int, cycles: float, target: Target, in_bands: bool) -> bool:
    """True if so many bytes between two kernels leave the second-level cache, and their arithmetic does not hide it; in_bands: the first of
    them is in bands already."""
    if in_bands or not target.has_few_registers:
        return nbytes > _STAYS * target.l2_bytes and nbytes / _BEYOND_L2_RATE > _WAITS * cycles
    rate = _NEAR_RATE if nbytes <= _FAR * target.l2_bytes else _FAR_RATE
    return nbytes > _LEAST * target.l2_bytes and nbytes / rate > cycles


def _row_kernel(launches: Sequence[Launch]) -> Kernel | None:
    """The only kernel of a unit, if its tasks are rows of one image."""
    kernel = launches[0].kernel if len(launches) == 1 else None
    return kernel if kernel is not None and kernel.rows is not None and kernel.rows.images == 1 else None


def _one(
    chain: Sequence[Unit], launches: Launches, kernels: KernelMaker, target: Target, nbytes: Callable[[ir.Value], int]
) -> tuple[Unit, Launch]:
    """The unit of a chain and its launch. What only the chain reads is its workspace."""
    parts = [launches[unit][0].kernel for unit in chain]
    group = Group([node for unit in chain for node in unit.nodes])
    between = [value for unit in chain[:-1] if unit.group is not None for value in unit.group.outputs]
    rows = parts[-1].rows
    assert rows is not None
    bands = max(_LEAST_BANDS, -(-sum(nbytes(value) for value in between) // int(_BAND * target.l2_bytes)))
    kernel = in_bands(parts, max(1, -(-rows.rows // bands)))
    outputs = {value.name or "" for value in group.outputs}
    kernels.texts[kernel.symbol] = kernel.ir
    kernels.workspaces[group] = [(value.name or "", nbytes(value)) for value in between if value.name not in outputs]
    names = tuple(name for unit in chain for name in launches[unit][0].outputs if name in outputs)
    return Unit(AICORE, tuple(group.nodes), group), Launch(kernel, names)
