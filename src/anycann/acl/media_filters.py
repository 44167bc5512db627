"""acl.media: borders, pyramids, histograms and tables of samples."""

from __future__ import annotations

from copy import copy
from dataclasses import field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.media_configs import BORDER_TYPES, BorderConfig, DvppChannel, ResizeConfig, RoiConfig
from anycann.acl.media_fields import declare_life
from anycann.acl.media_pictures import BatchPicDesc, PicDesc
from anycann.acl.media_tasks import submit
from anycann.acl.media_vpc import VPC, batch_pairs
from anycann.acl.process import PROCESS
from anycann.media.convert import Matrix
from anycann.media.filters import BINS, Border, add_border, halve_smoothly, histogram, look_up
from anycann.media.picture import View
from anycann.media.scale import check_inside, cut_and_frame
from anycann.runtime.allocations import Allocation
from anycann.support.records import dataclass

_CHANNELS = 3


def _tables(dtype: np.dtype) -> Allocation:
    made = PROCESS.allocations.allocate(_CHANNELS * BINS * dtype.itemsize, "host", -1)
    made.block[:] = 0
    return made


@dataclass
class Hist:
    """Counts of 256 samples for up to three channels, in memory of the host."""

    acl_word: ClassVar[str] = "histogram"
    memory: Allocation = field(default_factory=lambda: _tables(np.dtype(np.uint32)), repr=False)
    ret_code: int = 0

    @property
    def counts(self) -> NDArray[np.uint32]:
        return self.memory.block.view(np.uint32).reshape(_CHANNELS, BINS)


@dataclass
class LutMap:
    """A table of 256 samples for up to three channels, in memory of the host; at first each sample is itself."""

    acl_word: ClassVar[str] = "lookup table"
    memory: Allocation = field(default_factory=lambda: _tables(np.dtype(np.uint8)), repr=False)

    def __post_init__(self) -> None:
        self.tables[:] = np.arange(BINS)

    @property
    def tables(self) -> NDArray[np.uint8]:
        return self.memory.block.reshape(_CHANNELS, BINS)


def _release(found: Hist | LutMap) -> None:
    PROCESS.allocations.release(found.memory.address)


declare_life(Hist, "dvpp_create_hist", "dvpp_destroy_hist", _release)
declare_life(LutMap, "dvpp_create_lut_map", "dvpp_destroy_lut_map", _release)


@value("acl.media.dvpp_get_hist_dims", returns="count")
def dvpp_get_hist_dims(hist: int) -> int:
    """How many channels it has room for."""
    PROCESS.handles.get(hist, Hist)
    return _CHANNELS


@value_and_status("acl.media.dvpp_get_hist_data", failed=(0, 0), returns="(ptr, length, ret)")
def dvpp_get_hist_data(hist: int, dim: int) -> tuple[int, int]:
    """Where the 256 uint32 of channel `dim` are."""
    found = PROCESS.handles.get(hist, Hist)
    _check_channel(dim)
    return found.memory.address + dim * BINS * 4, BINS


@value("acl.media.dvpp_get_hist_ret_code", returns="code")
def dvpp_get_hist_ret_code(hist: int) -> int:
    """How the last counting went."""
    return PROCESS.handles.get(hist, Hist).ret_code


@status("acl.media.dvpp_clear_hist")
def dvpp_clear_hist(hist: int) -> None:
    """All counts become 0."""
    PROCESS.handles.get(hist, Hist).counts[:] = 0


@value("acl.media.dvpp_get_lut_map_dims", returns="count")
def dvpp_get_lut_map_dims(lut: int) -> int:
    """How many channels it has tables for."""
    PROCESS.handles.get(lut, LutMap)
    return _CHANNELS


@value_and_status("acl.media.dvpp_get_lut_map_data", failed=(0, 0), returns="(ptr, length, ret)")
def dvpp_get_lut_map_data(lut: int, dim: int) -> tuple[int, int]:
    """Where the 256 uint8 of channel `dim` are, for the program to write."""
    found = PROCESS.handles.get(lut, LutMap)
    _check_channel(dim)
    return found.memory.address + dim * BINS, BINS


def _check_channel(dim: int) -> None:
    if not 0 <= dim < _CHANNELS:
        raise AclError(Code.INVALID_PARAM, f"channel {dim} is not there; accepted: 0 to {_CHANNELS - 1}")


def _open(channel: int) -> DvppChannel:
    found = PROCESS.handles.get(channel, DvppChannel)
    found.check_open_for(VPC)
    return found


def _views(source: PicDesc, target: PicDesc) -> tuple[View, View]:
    return source.picture("input").view(), target.picture("output").view()


@status("acl.media.dvpp_vpc_calc_hist_async")
def dvpp_vpc_calc_hist_async(channel: int, pic: int, hist: int, reserve: int, stream: int) -> None:
    """Count the samples of a picture: three channels of RGB, the Y of YUV."""
    _open(channel)
    source, found = copy(PROCESS.handles.get(pic, PicDesc)), PROCESS.handles.get(hist, Hist)
    source.picture("input")

    def task() -> None:
        counts = histogram(source.picture("input").view())
        found.counts[: len(counts)] = counts

    submit(stream, task)


@status("acl.media.dvpp_vpc_equalize_hist_async")
def dvpp_vpc_equalize_hist_async(channel: int, input_pic: int, output_pic: int, lut: int, stream: int) -> None:
    """Replace every sample by what the table has for it."""
    _open(channel)
    target = PROCESS.handles.get(output_pic, PicDesc)
    pictures, found = (copy(PROCESS.handles.get(input_pic, PicDesc)), copy(target)), PROCESS.handles.get(lut, LutMap)
    _views(*pictures)
    submit(stream, lambda: look_up(*_views(*pictures), found.tables), (target,))


@status("acl.media.dvpp_vpc_pyr_down_async")
def dvpp_vpc_pyr_down_async(channel: int, input_pic: int, output_pic: int, reserve: int, stream: int) -> None:
    """Smooth a picture and take every second pixel."""
    _open(channel)
    target = PROCESS.handles.get(output_pic, PicDesc)
    pictures = copy(PROCESS.handles.get(input_pic, PicDesc)), copy(target)
    _views(*pictures)
    submit(stream, lambda: halve_smoothly(*_views(*pictures)), (target,))


@status("acl.media.dvpp_vpc_make_border_async")
def dvpp_vpc_make_border_async(channel: int, input_pic: int, output_pic: int, border: int, stream: int) -> None:
    """Copy a picture and put a border around it."""
    _open(channel)
    target, wanted = PROCESS.handles.get(output_pic, PicDesc), _border(border)
    pictures = copy(PROCESS.handles.get(input_pic, PicDesc)), copy(target)
    _views(*pictures)
    submit(stream, lambda: add_border(*_views(*pictures), wanted), (target,))


@status("acl.media.dvpp_vpc_batch_crop_resize_make_border_async")
def dvpp_vpc_batch_crop_resize_make_border_async(
    channel: int, source: int, counts: list[int], target: int, crops: list[int], borders: list[int], config: int, stream: int
) -> None:
    """Cut regions of several pictures, scale each to an output picture without its border, and put the border around it."""
    matrix, chosen = Matrix(_open(channel).matrix), PROCESS.handles.get(config, ResizeConfig).chosen()
    PROCESS.handles.get(source, BatchPicDesc)
    if len(borders) != len(crops):
        raise AclError(Code.INVALID_PARAM, f"{len(crops)} regions and {len(borders)} borders; accepted: as many of each")
    pairs = batch_pairs(source, counts, target, crops)
    regions = [PROCESS.handles.get(crop, RoiConfig).region() for crop in crops]
    frames = [_border(border) for border in borders]
    for (one, other), region in zip(pairs, regions, strict=True):
        check_inside(region, one.picture("input"), "crop")
        other.picture("output")
    given = [(copy(one), copy(other)) for one, other in pairs]

    def task() -> None:
        for (one, other), region, frame in zip(given, regions, frames, strict=True):
            cut_and_frame(one.picture("input").view(region), other.picture("output").view(), frame, chosen, matrix)

    submit(stream, task, [other for _, other in pairs])


def _border(handle: int) -> Border:
    found = PROCESS.handles.get(handle, BorderConfig)
    values = tuple(int(min(max(number, 0), 255)) for number in found.values)
    return Border(BORDER_TYPES[found.border_type], found.top, found.bottom, found.left, found.right, values)
