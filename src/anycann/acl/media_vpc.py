"""acl.media: pictures cut, scaled, pasted, converted: what VPC does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.media_configs import DvppChannel, ResizeConfig, RoiConfig
from anycann.acl.media_memory import device_bytes
from anycann.acl.media_pictures import MOST_IN_A_BATCH, BatchPicDesc, PicDesc, series
from anycann.acl.media_tasks import submit
from anycann.acl.process import PROCESS
from anycann.media.convert import Matrix
from anycann.media.picture import Picture, Region
from anycann.media.resize import Interpolation
from anycann.media.scale import check_inside, transfer
from anycann.support.records import dataclass

VPC = 1
_LEAST = (10, 6)
_MOST_IN, _MOST_OUT = (8192, 8192), (4096, 8192)
_WIDEST_SCALE = 32  # and 1 / 32
_PASTE_ALIGNMENT = 16
_STRICT = ("310", "310P", "910")  # chips that want regions to begin at even pixels


@dataclass(frozen=True)
class Job:
    """One transfer of pixels."""

    source: PicDesc
    target: PicDesc
    crop: Region | None = None
    paste: Region | None = None
    interpolation: Interpolation = Interpolation.BILINEAR

    def checked(self) -> Transfer:
        """What is to be done. Raises AclError for pictures and regions that the chip does not take."""
        source, target = self.source.picture("input"), self.target.picture("output")
        _check_size(source, "input", _MOST_IN)
        _check_size(target, "output", _MOST_OUT)
        crop, paste = self.crop or source.whole, self.paste or target.whole
        for region, picture, role in ((crop, source, "crop"), (paste, target, "paste")):
            check_inside(region, picture, role)
        if series() in _STRICT:
            self._check_alignment(source, target)
        _check_scale(crop, paste)
        return Transfer(source, target, self.crop, self.paste, self.interpolation, (self.source.data, self.target.data))

    def _check_alignment(self, source: Picture, target: Picture) -> None:
        for region, picture, role in ((self.crop, source, "crop"), (self.paste, target, "paste")):
            if region is not None and (region.left % picture.format.across or region.top % picture.format.down):
                raise AclError(
                    Code.INVALID_PARAM,
                    f"the {role} region begins at left {region.left}, top {region.top}; {PROCESS.soc_name} accepts even numbers for "
                    f"{picture.format.name}",
                )
        if self.paste is not None and self.paste.left % _PASTE_ALIGNMENT:
            raise AclError(
                Code.INVALID_PARAM,
                f"the paste region begins at left {self.paste.left}; {PROCESS.soc_name} accepts multiples of {_PASTE_ALIGNMENT}",
            )


@dataclass(frozen=True)
class Transfer:
    """A job as it was given; the descriptions may be changed since. `addresses`: of both pictures."""

    source: Picture
    target: Picture
    crop: Region | None
    paste: Region | None
    interpolation: Interpolation
    addresses: tuple[int, int]

    def run(self, matrix: Matrix) -> None:
        """Do it. Raises AclError for memory that was freed since."""
        source, target = self.source, self.target
        for picture, address, role in ((source, self.addresses[0], "input"), (target, self.addresses[1], "output")):
            device_bytes(address, picture.nbytes, role)
        if np.may_share_memory(source.data, target.data):
            source = replace(source, data=source.data.copy())
        transfer(source, target, self.crop, self.paste, self.interpolation, matrix)


def _check_size(picture: Picture, role: str, most: tuple[int, int]) -> None:
    inside = _LEAST[0] <= picture.width <= most[0] and _LEAST[1] <= picture.height <= most[1]
    if not inside:
        raise AclError(
            Code.INVALID_PARAM,
            f"the {role} picture has {picture.width} x {picture.height} pixels; "
            f"accepted: {_LEAST[0]} x {_LEAST[1]} to {most[0]} x {most[1]}",
        )


def _check_scale(crop: Region, paste: Region) -> None:
    for before, after, axis in ((crop.width, paste.width, "width"), (crop.height, paste.height, "height")):
        if before > after * _WIDEST_SCALE or after > before * _WIDEST_SCALE * 16:
            raise AclError(Code.INVALID_PARAM, f"the {axis} is scaled from {before} to {after}; accepted: 1/32 to 512 times")


def _submit(channel: int, stream: int, jobs: Sequence[Job]) -> None:
    found = PROCESS.handles.get(channel, DvppChannel)
    found.check_open_for(VPC)
    transfers = [job.checked() for job in jobs]
    matrix = Matrix(found.matrix)

    def task() -> None:
        for each in transfers:
            each.run(matrix)

    submit(stream, task, [job.target for job in jobs])


def _picture(handle: int) -> PicDesc:
    return PROCESS.handles.get(handle, PicDesc)


def _region(handle: int) -> Region:
    return PROCESS.handles.get(handle, RoiConfig).region()


def _interpolation(handle: int) -> Interpolation:
    return PROCESS.handles.get(handle, ResizeConfig).chosen()


# ---- one picture
@status("acl.media.dvpp_vpc_resize_async")
def dvpp_vpc_resize_async(channel: int, input_pic: int, output_pic: int, config: int, stream: int) -> None:
    """Scale a picture to the size of another, and to its format."""
    _submit(channel, stream, [Job(_picture(input_pic), _picture(output_pic), interpolation=_interpolation(config))])


@status("acl.media.dvpp_vpc_crop_async")
def dvpp_vpc_crop_async(channel: int, input_pic: int, output_pic: int, crop: int, stream: int) -> None:
    """Scale a region of a picture to the size of another."""
    _submit(channel, stream, [Job(_picture(input_pic), _picture(output_pic), _region(crop))])


@status("acl.media.dvpp_vpc_crop_resize_async")
def dvpp_vpc_crop_resize_async(channel: int, input_pic: int, output_pic: int, crop: int, config: int, stream: int) -> None:
    """As dvpp_vpc_crop_async, with a choice of interpolation."""
    _submit(channel, stream, [Job(_picture(input_pic), _picture(output_pic), _region(crop), None, _interpolation(config))])


@status("acl.media.dvpp_vpc_crop_and_paste_async")
def dvpp_vpc_crop_and_paste_async(channel: int, input_pic: int, output_pic: int, crop: int, paste: int, stream: int) -> None:
    """Scale a region of a picture to a region of another, whose other pixels stay."""
    _submit(channel, stream, [Job(_picture(input_pic), _picture(output_pic), _region(crop), _region(paste))])


@status("acl.media.dvpp_vpc_crop_resize_paste_async")
def dvpp_vpc_crop_resize_paste_async(
    channel: int, input_pic: int, output_pic: int, crop: int, paste: int, config: int, stream: int
) -> None:
    """As dvpp_vpc_crop_and_paste_async, with a choice of interpolation."""
    _submit(channel, stream, [Job(_picture(input_pic), _picture(output_pic), _region(crop), _region(paste), _interpolation(config))])


@status("acl.media.dvpp_vpc_convert_color_async")
def dvpp_vpc_convert_color_async(channel: int, input_pic: int, output_pic: int, stream: int) -> None:
    """Convert a picture to the format of another of the same size."""
    source, target = _picture(input_pic), _picture(output_pic)
    if (source.width, source.height) != (target.width, target.height):
        raise AclError(
            Code.INVALID_PARAM,
            f"the input has {source.width} x {source.height} pixels, the output {target.width} x {target.height}; accepted: the same size",
        )
    _submit(channel, stream, [Job(source, target)])


# ---- batches
def batch_pairs(source: int, counts: list[int], target: int, crops: list[int]) -> list[tuple[PicDesc, PicDesc]]:
    """The input and output picture of every region: the first counts[0] regions are of the first picture, and so on.

    Raises AclError for numbers that do not go together.
    """
    sources, targets = (PROCESS.handles.get(batch, BatchPicDesc).pictures for batch in (source, target))
    if len(counts) != len(sources) or sum(counts) != len(crops) or not 1 <= len(crops) <= MOST_IN_A_BATCH or min(counts) < 0:
        raise AclError(
            Code.INVALID_PARAM,
            f"{len(counts)} counts of regions that add up to {sum(counts)}, for {len(sources)} pictures and {len(crops)} regions; "
            f"accepted: one count a picture, together the number of regions, at most {MOST_IN_A_BATCH}",
        )
    if len(targets) < len(crops):
        raise AclError(Code.INVALID_PARAM, f"{len(crops)} regions for {len(targets)} output pictures; accepted: as many of each")
    of = [picture for picture, count in zip(sources, counts, strict=True) for _ in range(count)]
    return [(_picture(one), _picture(other)) for one, other in zip(of, targets, strict=False)]


def _batch(
    source: int, counts: list[int], target: int, crops: list[int], pastes: list[int] | None = None, chosen: Interpolation | None = None
) -> list[Job]:
    pairs = batch_pairs(source, counts, target, crops)
    if pastes is not None and len(pastes) != len(crops):
        raise AclError(Code.INVALID_PARAM, f"{len(crops)} crop regions and {len(pastes)} paste regions; accepted: as many of each")
    wanted = [None] * len(crops) if pastes is None else [_region(paste) for paste in pastes]
    how = chosen or Interpolation.BILINEAR
    return [Job(*pair, _region(crop), paste, how) for pair, crop, paste in zip(pairs, crops, wanted, strict=True)]


@value_and_status("acl.media.dvpp_vpc_batch_crop_async", returns="(batch, ret)")
def dvpp_vpc_batch_crop_async(channel: int, source: int, counts: list[int], target: int, crops: list[int], stream: int) -> int:
    """dvpp_vpc_crop_async for regions of several pictures: counts[i] regions of picture i."""
    _submit(channel, stream, _batch(source, counts, target, crops))
    return target


@value_and_status("acl.media.dvpp_vpc_batch_crop_and_paste_async", returns="(batch, ret)")
def dvpp_vpc_batch_crop_and_paste_async(
    channel: int, source: int, counts: list[int], target: int, crops: list[int], pastes: list[int], stream: int
) -> int:
    """dvpp_vpc_crop_and_paste_async for regions of several pictures."""
    _submit(channel, stream, _batch(source, counts, target, crops, pastes))
    return target


@status("acl.media.dvpp_vpc_batch_crop_resize_async")
def dvpp_vpc_batch_crop_resize_async(
    channel: int, source: int, counts: list[int], target: int, crops: list[int], config: int, stream: int
) -> None:
    """dvpp_vpc_crop_resize_async for regions of several pictures."""
    _submit(channel, stream, _batch(source, counts, target, crops, None, _interpolation(config)))


@status("acl.media.dvpp_vpc_batch_crop_resize_paste_async")
def dvpp_vpc_batch_crop_resize_paste_async(
    channel: int, source: int, counts: list[int], target: int, crops: list[int], pastes: list[int], config: int, stream: int
) -> None:
    """dvpp_vpc_crop_resize_paste_async for regions of several pictures."""
    _submit(channel, stream, _batch(source, counts, target, crops, pastes, _interpolation(config)))
