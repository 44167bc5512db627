"""Which images are never there as a whole: those that a pointwise kernel makes for one convolution, row by row (codegen/windows.py).

They are what becomes of a picture on its way into a network, by AIPP or by nodes of the model that scale it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import onnx_ir as ir

from anycann.assembly.kernels import Generators, KernelMaker, Launch
from anycann.codegen.contract import rows_read
from anycann.codegen.kernel import RowTasks
from anycann.codegen.nest_kernel import rows_of
from anycann.codegen.windows import through_window
from anycann.graph.registry import TensorType, static_type
from anycann.passes.aliases import Aliases
from anycann.passes.grouping import Group, group_tensors
from anycann.passes.layout import CONVOLUTIONS
from anycann.passes.order import Unit
from anycann.passes.partition import AICORE
from anycann.support.records import dataclass
from anycann.te.contractions import Picture
from anycann.te.layout import window
from anycann.te.nest import CannotFuse, build_nest, contractions
from anycann.te.tensor import Compute

_MOST_CHANNELS = 4  # of a picture; what has more is read in other layouts
_WINDOW, _LARGEST = 1 / 16, 1 / 4  # of the second-level cache; larger than the first only so that few rows are made twice
_MADE_TWICE = 1 / 8  # of the rows, those around the border between two windows


@dataclass(frozen=True)
class Window:
    """`reader` computes `rows` rows at a time from what `maker` makes of the image `value`, which is stored in `layout`."""

    value: ir.Value
    maker: Unit
    reader: Unit
    rows: int
    layout: str
    row_bytes: int
    nbytes: int


def find_windows(units: Sequence[Unit], layouts: Mapping[ir.Value, str], aliases: Aliases, generators: Generators) -> list[Window]:
    """The images that only a window is kept of. Why others are stored is left with their groups."""
    reader_of = {node: unit for unit in units for node in unit.nodes}
    roots = {alias.root for alias in aliases.of.values()}
    found: list[Window] = []
    for unit in units:
        value = _image(unit)
        if value is None or unit in aliases.slices or value in aliases.of or value in roots or not _is_pointwise(unit, layouts, generators):
            continue
        made = _window(unit, value, reader_of, layouts, generators)
        if isinstance(made, Window):
            found.append(made)
        elif unit.group is not None:
            unit.group.skipped.append((next((use.node.name or "" for use in value.uses()), ""), made))
    return found


def join_windows(
    units: Sequence[Unit], launches: Mapping[Unit, list[Launch]], kernels: KernelMaker, windows: Sequence[Window]
) -> tuple[list[Unit], dict[Unit, list[Launch]]]:
    """The units and their launches, where what makes an image of `windows` joins what reads it."""
    makers, readers = {each.maker for each in windows}, {each.reader: each for each in windows}
    joined, found = list[Unit](), dict(launches)
    for unit in units:
        each = readers.get(unit)
        if each is not None:
            nodes = (*each.maker.nodes, *unit.nodes)
            unit = Unit(AICORE, nodes, Group(list(nodes)))
            found[unit] = [_launch(found.pop(each.maker), found.pop(each.reader), kernels, each)]
        if unit not in makers:
            joined.append(unit)
    return joined, found


def _image(unit: Unit) -> ir.Value | None:
    """The only result of a unit, if it is an image of few channels that convolutions read."""
    outputs = unit.group.outputs if unit.group is not None and not unit.group.alone else []
    if len(outputs) != 1 or outputs[0].is_graph_output() or not any(use.node.op_type in CONVOLUTIONS for use in outputs[0].uses()):
        return None
    type_ = static_type(outputs[0])
    is_picture = type_ is not None and len(type_.shape) == 4 and type_.shape[1] <= _MOST_CHANNELS and min(type_.shape) > 0
    return outputs[0] if is_picture else None


def _type(value: ir.Value) -> TensorType:
    type_ = static_type(value)
    assert type_ is not None
    return type_


def _is_pointwise(unit: Unit, layouts: Mapping[ir.Value, str], generators: Generators) -> bool:
    """True if a unit computes its image, element by element, from what is stored row by row, or from pictures that a table speaks of."""
    group = unit.group
    if group is None or unit.nodes[0].op_type == "Concat" or any(value in layouts for value in group.inputs):
        return False
    tensor = group_tensors(group, generators.registry)[group.outputs[0]]
    anchors = contractions([tensor])
    if not isinstance(tensor, Compute) or anchors:
        return isinstance(tensor, Compute) and all(isinstance(anchor.operator, Picture) for anchor in anchors)
    try:
        return rows_of(build_nest([tensor])) is not None
    except CannotFuse:
        return False


def _window(
    unit: Unit, value: ir.Value, reader_of: Mapping[ir.Node, Unit], layouts: Mapping[ir.Value, str], generators: Generators
) -> Window | str:
    """The window of an image, or why it has none."""
    uses = list(value.uses())
    if len(uses) > 1:
        return f"{len(uses)} nodes read it"
    reader = reader_of.get(uses[0].node)
    if reader is None or reader.group is None:
        return "its reader is no kernel of this program"
    rows = _rows_read(reader.group, value, generators)
    if isinstance(rows, str):
        return rows
    type_ = _type(value)
    row_bytes = type_.shape[3] * type_.dtype.nbytes
    size = row_bytes * type_.shape[1]
    span, cache = rows.last - rows.first + 1, generators.target.l2_bytes
    fitting, most = ((int(share * cache) // size - span) // rows.stride + 1 for share in (_WINDOW, _LARGEST))
    least = ceil((span - rows.stride) / (_MADE_TWICE * rows.stride))
    at_once = min(rows.rows, max(1, fitting, min(least, most)))
    kept = rows.reads(at_once)
    return Window(value, unit, reader, at_once, window(kept), row_bytes, kept * size)


def _rows_read(group: Group, value: ir.Value, generators: Generators) -> RowTasks | str:
    tensors = group_tensors(group, generators.registry)
    anchors = contractions([tensors[output] for output in group.outputs])
    if len(anchors) != 1:
        return "it is read by no convolution"
    return rows_read(anchors[0], value.name or "", generators.target, generators.choices)


def _launch(maker: Sequence[Launch], reader: Sequence[Launch], kernels: KernelMaker, each: Window) -> Launch:
    (first,), (second,) = maker, reader
    kernel = through_window(first.kernel, second.kernel, each.rows, each.row_bytes, each.nbytes)
    kernels.texts[kernel.symbol] = kernel.ir
    return Launch(kernel, second.outputs)
