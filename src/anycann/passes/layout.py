"""How each stored value is laid out: convolutions write NC1HWC0, bytes and bfloat16 NHWC. What follows them keeps it, as long as axis 1 is
that of the channels, and so do images made of row-major pixels; what only convolutions read is written so at once; everything else is
row-major.

A view (Reshape ...) needs row-major elements and a depthwise convolution blocked ones: a TransData copy is put where they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
import math

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.grouping import Group
from anycann.passes.partition import AICORE, AICPU, CONTROL, DEFERRED, EMPTY, VIEW, Engine, captured_values
from anycann.te import dtypes
from anycann.te.layout import NC1HWC0, ND, NHWC

LEAST_PIXELS = 64  # of a plane that is worth a copy
FLAT_READERS = frozenset({VIEW, AICPU, CONTROL, DEFERRED})
PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "MatMulInteger", "QLinearMatMul"})
CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv", "ConvInteger", "QLinearConv"})
SAMPLERS = frozenset({"GridSample", "RoiAlign"})  # read pixels at computed places: one place for all channels, or a gather for each
_PICKED = 8  # pixels of a picture, for each that a sampler makes, that are worth a copy


def assign_layouts(
    graph: ir.Graph,
    engines: Mapping[ir.Node, Engine],
    groups: Mapping[ir.Node, Group],
    lanes: int,
    planar: Collection[ir.Node] = (),
) -> dict[ir.Value, str]:
    """The layout of each value that is stored; absent means row-major, as the convolutions `planar` read and write."""
    captured = {value for node in graph for value in captured_values(node)}
    layouts: dict[ir.Value, str] = {}
    done: set[Group] = set()
    for node in graph:
        group = groups.get(node)
        if group is None or group in done or node is not group.nodes[-1]:
            continue
        done.add(group)
        follows = _follows_blocked(group, layouts) or _gains_by_channels(group, layouts)
        for value in group.outputs:
            if any(node in planar for node in group.nodes):
                continue
            read = not any(use.node in planar for use in value.uses()) and _is_read_in_blocks(group, value, groups, lanes)
            wanted = follows or _turns_pixels(group, layouts) or read
            layout = _channel_layout(value, lanes, _is_depthwise(group.nodes[0]) or _is_read_depthwise(value)) if wanted else ND
            if layout != ND and value not in captured and not (_only_flat_readers(value, engines) and not _scatters(group, value, lanes)):
                layouts[value] = layout
    return layouts


def _only_flat_readers(value: ir.Value, engines: Mapping[ir.Node, Engine]) -> bool:
    """True for a graph output, and where every reader needs row-major elements."""
    return value.is_graph_output() or all(engines[use.node].kind in FLAT_READERS for use in value.uses() if use.node in engines)


def _scatters(group: Group, value: ir.Value, lanes: int) -> bool:
    """True if channels are computed together and would be written to a plane each: a copy behind that is faster by far.

    From 8 to 16 channels on 320 x 320 pixels: 5.9 ms, and 1.4 with the copy; planes whole pages apart share their places in the cache.
    """
    type_ = static_type(value)
    assert type_ is not None
    writes = _sampler(group) is not None or (_convolves(group) and math.prod(type_.shape[2:]) >= LEAST_PIXELS)
    return writes and _fills_vectors(value, lanes)


def _follows_blocked(group: Group, layouts: Mapping[ir.Value, str]) -> bool:
    """True for a convolution, and where the largest input is in blocks of an axis that is the same in the results."""
    if group.alone or _slides_over_channels(group):
        return False
    if _convolves(group):
        return True
    if any(_moves_channels(node) for node in group.nodes):
        return False
    inputs = [v for v in group.inputs if v.const_value is None]
    largest = max(inputs, key=_elements, default=None)
    return largest is not None and layouts.get(largest, ND) != ND


def _sampler(group: Group) -> ir.Node | None:
    return next((node for node in group.nodes if node.op_type in SAMPLERS), None)


def _gains_by_channels(group: Group, layouts: Mapping[ir.Value, str]) -> bool:
    """True where pixels are picked from blocks of channels, or from so few that blocks are worth a copy."""
    sampler = _sampler(group)
    source = sampler.inputs[0] if sampler is not None else None
    if sampler is None or source is None or group.alone or any(_moves_channels(node) for node in group.nodes):
        return False
    return layouts.get(source, ND) != ND or _elements(source) <= _PICKED * _elements(sampler.outputs[0])


def _slides_over_channels(group: Group) -> bool:
    """True where each result is made of the channels beside its own: vectors of channels would be gathered, of pixels they are loaded.

    LRN of 32 channels of 64 x 64 pixels took 1.0 ms from blocks, and takes 84 us, with 25 for the copies.
    """
    return not _convolves(group) and any(node.op_type == "LRN" for node in group.nodes)


def _convolves(group: Group) -> bool:
    return any(node.op_type in CONVOLUTIONS for node in group.nodes)


def _moves_channels(node: ir.Node) -> bool:
    """True if axis 1 of the result is not axis 1 of what it is made of."""
    if node.op_type == "Transpose":
        order = node.attributes.get_ints("perm", ())
        return len(order) < 2 or order[1] != 1
    return node.op_type in PRODUCTS


def _turns_pixels(group: Group, layouts: Mapping[ir.Value, str]) -> bool:
    """True where row-major pixels become an image by a Transpose, and nothing else moves their channels: these lie together as they are."""
    moving = [node for node in group.nodes if _moves_channels(node)]
    inputs = [value for value in group.inputs if value.const_value is None]
    turned = bool(moving) and not group.alone and all(_makes_channels_first(node) for node in moving)
    return turned and all(layouts.get(value, ND) == ND for value in inputs)


def _makes_channels_first(node: ir.Node) -> bool:
    order = list(node.attributes.get_ints("perm", ())) if node.op_type == "Transpose" else []
    return len(order) > 3 and order == [0, len(order) - 1, *range(1, len(order) - 1)]


def _is_read_in_blocks(group: Group, value: ir.Value, groups: Mapping[ir.Node, Group], lanes: int) -> bool:
    """True if all readers are convolutions, of many channels: then the blocks are written at once, and not by a copy."""
    as_weights = any(use.node.op_type in CONVOLUTIONS and use.idx > 0 for use in value.uses())
    if group.alone or as_weights or _slides_over_channels(group) or not _fills_vectors(value, lanes):
        return False
    readers = [groups.get(use.node) for use in value.uses()]
    return bool(readers) and all(reader is not None and _convolves(reader) for reader in readers)


def _elements(value: ir.Value) -> int:
    type_ = static_type(value)
    size = 1
    for extent in type_.shape if type_ is not None else ():
        size *= extent
    return size


def _is_depthwise(node: ir.Node) -> bool:
    """True for a convolution of each channel by itself."""
    type_ = static_type(node.inputs[0]) if node.op_type in CONVOLUTIONS else None
    return type_ is not None and len(type_.shape) > 2 and node.attributes.get_int("group", 1) == type_.shape[1] > 1


def _is_read_depthwise(value: ir.Value) -> bool:
    return any(_is_depthwise(use.node) for use in value.uses() if use.idx == 0)


def _channel_layout(value: ir.Value, lanes: int, depthwise: bool) -> str:
    """Bytes and bfloat16 with channels last; others in blocks, given so many channels that padding the last costs less than it gains.

    Beside a `depthwise` convolution, which reads and writes vectors of channels, a quarter of the lanes is enough. With 8 channels of
    48 x 48 pixels before and behind one, a network of five convolutions took 32 us where it took 38.
    """
    type_ = static_type(value)
    if type_ is None or len(type_.shape) < 3:
        return ND
    if type_.dtype in (dtypes.int8, dtypes.uint8, dtypes.bfloat16):
        return NHWC
    return NC1HWC0 if _fills_vectors(value, lanes) or (depthwise and type_.shape[1] * 4 >= lanes) else ND


def _fills_vectors(value: ir.Value, lanes: int) -> bool:
    """True for so many channels that a vector of them is more than half full."""
    type_ = static_type(value)
    return type_ is not None and len(type_.shape) > 2 and type_.shape[1] * 2 > lanes


def insert_transfers(
    graph: ir.Graph,
    engines: dict[ir.Node, Engine],
    groups: dict[ir.Node, Group],
    layouts: dict[ir.Value, str],
    wanted: Callable[[ir.Node, int, str], str],
    planar: Collection[ir.Node] = (),
) -> None:
    """Put a TransData before each reader that cannot read the stored layout. `wanted(node, operand, stored)` names the one it can; the
    convolutions `planar` read planes.
    """
    copies: dict[tuple[ir.Value, str], ir.Value] = {}
    for node in list(graph):
        if engines[node].kind in (EMPTY,):
            continue
        for number, value in enumerate(node.inputs):
            if value is None or value.const_value is not None or static_type(value) is None:
                continue
            stored = layouts.get(value, ND)
            need = ND if node in planar else _need(node, number, stored, engines, wanted)
            if number == 0 and node.op_type in SAMPLERS and need == ND:
                need = _layout_of_all(groups.get(node), layouts)
            if _spreads(groups.get(node), value, layouts) and wanted(node, number, ND) == ND:
                need = ND
            producer = value.producer()
            if need == stored or (producer in groups and groups.get(node) is groups[producer]):
                continue
            if (value, need) not in copies:
                copies[value, need] = _transfer(graph, node, value, need, engines, groups, layouts)
            node.replace_input_with(number, copies[value, need])
    for number, value in enumerate(list(graph.outputs)):
        if layouts.get(value, ND) != ND:
            _hand_out(graph, number, value, engines, groups, layouts)


def _layout_of_all(group: Group | None, layouts: Mapping[ir.Value, str]) -> str:
    """The layout in which all results are stored; row-major if they differ."""
    found = {layouts.get(value, ND) for value in group.outputs} if group is not None else set()
    return found.pop() if len(found) == 1 else ND


def _spreads(group: Group | None, value: ir.Value, layouts: Mapping[ir.Value, str]) -> bool:
    """True if row-major planes are made of neighbouring channels, or of fewer pixels by no convolution, where a vector of channels would
    write to as many planes at once.

    32 channels of 32 x 64 pixels made 256 x 512 by Resize took 14 ms from blocks, and 3 to 4 with the copy.
    """
    type_ = static_type(value)
    if group is None or type_ is None or math.prod(type_.shape[2:]) < LEAST_PIXELS or _convolves(group):
        return False
    if _slides_over_channels(group):
        return True
    read = sum(_elements(each) for each in group.inputs if each.const_value is None)
    return all(layouts.get(result, ND) == ND and _elements(result) > read for result in group.outputs)


def _hand_out(
    graph: ir.Graph,
    number: int,
    value: ir.Value,
    engines: dict[ir.Node, Engine],
    groups: dict[ir.Node, Group],
    layouts: dict[ir.Value, str],
) -> None:
    """A row-major copy takes the place and the name of an output that is stored otherwise."""
    copy = _transfer(graph, next(iter(graph)), value, ND, engines, groups, layouts)
    graph.outputs[number] = copy
    value.name, copy.name = f"{value.name}/stored", value.name


def _need(node: ir.Node, number: int, stored: str, engines: dict[ir.Node, Engine], wanted: Callable[[ir.Node, int, str], str]) -> str:
    kind = engines[node].kind
    if kind in FLAT_READERS:
        return ND
    return wanted(node, number, stored)


def _transfer(
    graph: ir.Graph,
    before: ir.Node,
    value: ir.Value,
    layout: str,
    engines: dict[ir.Node, Engine],
    groups: dict[ir.Node, Group],
    layouts: dict[ir.Value, str],
) -> ir.Value:
    copy = ir.Node("anycann", "TransData", [value], name=f"{value.name}/TransData_{layout}")
    copy.outputs[0].name = f"{value.name}/{layout}"
    copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
    producer = value.producer()
    if producer is not None:
        graph.insert_after(producer, copy)
    else:
        first = next(iter(graph))
        graph.insert_before(first, copy)
    engines[copy] = Engine(AICORE)
    groups[copy] = Group([copy])
    if layout != ND:
        layouts[copy.outputs[0]] = layout
    return copy.outputs[0]
