"""No kernel reads a byte outside its input: the input ends (and begins) at a page that may not be touched."""

from __future__ import annotations

import multiprocessing

from convolution_harness import Native, aligned, build, load, runnable_targets, shape_of
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import plain_writer
from anycann.codegen.kernels.convolution_method import packed_size
from anycann.codegen.kernels.convolution_planes import emit_planes
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_transposed import emit_transposed_convolution
from anycann.codegen.kernels.planes_tile import default_planes_tile, out_groups
from anycann.codegen.kernels.winograd import emit_winograd
from anycann.codegen.kernels.winograd_blocking import default_winograd_tile
from anycann.codegen.kernels.winograd_tile import winograd_weight_bytes
from anycann.target.target import Target

SHAPES = {
    "padded 3x3": shape_of(5, 9, (6, 13), 3, pads=1),
    "first layer": shape_of(3, 8, (17, 23), 7, strides=2, pads=3),
    "depthwise": shape_of(16, 16, (7, 9), 5, pads=2, group=16),
    "groups": shape_of(6, 9, (5, 6), 3, pads=1, group=3),
    "dilated": shape_of(4, 4, (9, 9), 3, pads=2, dilations=2),
    "pointwise": shape_of(7, 5, (5, 5), 1),
    "a column": shape_of(7, 5, (5, 2), (3, 1), strides=2, pads=(1, 0)),
    "wide kernel": shape_of(2, 3, (100,), 41, pads=(20,)),
    "groups that share vectors": shape_of(30, 60, (4, 5), 3, pads=1, group=3),
    "few outputs": shape_of(35, 2, (5, 7), 3, pads=1),
    "winograd": shape_of(20, 18, (7, 10), 3, pads=1, batch=2),
    "winograd with stride 2": shape_of(20, 18, (15, 10), (3, 5), strides=2, pads=(1, 2), batch=2),
    "winograd of a row": shape_of(17, 16, (5, 9), (1, 3), pads=(0, 1)),
    "winograd of volumes": shape_of(17, 16, (3, 7, 10), 3, pads=1),
    "planes": shape_of(3, 5, (5, 37), 3, pads=(0, 1)),
    "planes with stride 2": shape_of(3, 5, (5, 83), 3, strides=2, pads=(1, 0)),
    "channels last": shape_of(19, 19, (5, 7), 3, pads=1, group=19),
    "channels last in pairs": shape_of(38, 38, (5, 7), 3, group=19),
    "transposed": ConvolutionShape(1, 6, 5, 1, (4, 5), (3, 3), (2, 2), (1, 1), (1, 1), (8, 10)),
}


def _native(name: str, shape: ConvolutionShape, target: Target, blocked: bool) -> Native:
    e = Emitter()
    x, w, y = (e.argument(i) for i in range(3))
    writer = plain_writer(y, shape, target.lanes)
    if name.startswith("planes"):
        tile = default_planes_tile(shape, target)
        return load(e, target, emit_planes(e, shape, target, tile, x, w, lambda e, index, vector, mask: e.store(vector, y, 4)))
    if name.startswith("winograd"):
        launch = emit_winograd(e, shape, target, default_winograd_tile(shape, target), x, w, writer)
        return load(e, target, launch.tasks, launch.scratch_bytes)
    if name == "transposed":
        return load(e, target, emit_transposed_convolution(e, shape, target, x, w, writer, blocked))
    return build(shape, target, blocked=blocked, channels_last=_lie_last(name))


def _lie_last(name: str) -> bool:
    return name.startswith("channels last")


def _run_between_guards(name: str, target_number: int, blocked: bool, at_end: bool) -> None:
    """In a child process: a wrong load ends it with a signal."""
    import ctypes
    import mmap

    shape, target = SHAPES[name], runnable_targets()[target_number]
    channels = shape.in_blocks(target.lanes) * target.lanes if blocked and not _lie_last(name) else shape.in_channels
    count = shape.batch * channels * shape.in_pixels
    page = mmap.PAGESIZE
    inside = -(-4 * count // page) * page
    area = mmap.mmap(-1, inside + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (start, start + page + inside):
        assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
    offset = page + (inside - 4 * count if at_end else 0)
    x = np.frombuffer(area, np.float32, count, offset)
    x[:] = 1
    winograd = name.startswith("winograd")
    size = (
        winograd_weight_bytes(shape, target.lanes, default_winograd_tile(shape, target)) // 4
        if winograd
        else packed_size(shape, target.lanes, blocked)
    )
    tile = default_planes_tile(shape, target)
    weights = aligned(tile.outputs * out_groups(shape, tile) * shape.in_channels * shape.taps if name.startswith("planes") else size)
    weights[:] = 1
    y = aligned(shape.batch * shape.out_blocks(target.lanes) * target.lanes * shape.out_pixels)
    _native(name, shape, target, blocked)(x, weights, y)


@pytest.mark.parametrize("target_number", range(len(runnable_targets())), ids=[t.name for t in runnable_targets()])
@pytest.mark.parametrize("name", SHAPES)
def test_no_load_leaves_the_input(name, target_number):
    only = {"winograd": (True,), "planes": (False,), "channels": (True,)}
    for blocked in only.get(name.split()[0], (True, False)):
        for at_end in (True, False):
            child = multiprocessing.get_context("fork").Process(target=_run_between_guards, args=(name, target_number, blocked, at_end))
            child.start()
            child.join(600)
            assert child.exitcode == 0, (name, blocked, at_end)
