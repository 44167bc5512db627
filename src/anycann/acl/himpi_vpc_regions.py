"""acl.himpi: regions of pictures framed, scaled twice, and of several pictures at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, code_of, dict_in, errors_of, number_in, picture_of
from anycann.acl.himpi_vpc import border_of, check_count, crop_of, interpolation_of, paste_of, submit_transfers
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.media.picture import Picture, new_picture
from anycann.media.scale import check_inside, cut_and_frame, transfer


@value_and_status("acl.himpi.vpc_crop_resize_make_border", returns="(task, ret)")
def vpc_crop_resize_make_border(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut and scale regions and put a border of dest_left_offset and dest_top_offset, and of what is left, around each.

    A region: {dest_pic_info, crop_region, resize_info, dest_top_offset, dest_left_offset, border_type, scalar_value: {val}}.
    """
    with errors_of("VPC"):
        check_count(regions, count)
        return _frame(channel, [source] * count, regions)


@value_and_status("acl.himpi.vpc_batch_crop_resize_make_border", returns="(task, ret)")
def vpc_batch_crop_resize_make_border(
    channel: int, sources: list[Any], count: int, regions: list[Any], counts: list[int], timeout_ms: int
) -> int:
    """vpc_crop_resize_make_border for several pictures: counts[i] regions of picture i."""
    with errors_of("VPC"):
        return _frame(channel, _sources(sources, count, regions, counts), regions)


@value_and_status("acl.himpi.vpc_batch_crop_resize_paste", returns="(task, ret)")
def vpc_batch_crop_resize_paste(
    channel: int, sources: list[Any], count: int, regions: list[Any], counts: list[int], timeout_ms: int
) -> int:
    """vpc_crop_resize_paste for several pictures: counts[i] regions of picture i."""
    with errors_of("VPC"):
        of = _sources(sources, count, regions, counts)
        return submit_transfers(
            channel,
            [
                (one, dict_in(info, "dest_pic_info", "the crop"), crop_of(info), paste_of(info), interpolation_of(info))
                for one, info in zip(of, regions, strict=True)
            ],
        )


@value_and_status("acl.himpi.vpc_crop_resize_resize_paste", returns="(task, ret)")
def vpc_crop_resize_resize_paste(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut regions, scale each to resize_info1 and that to resize_info2, and paste it."""
    with errors_of("VPC"):
        check_count(regions, count)
        found = CHANNELS.get(channel)
        steps = []
        for info in regions:
            one, other = picture_of(source, "input"), picture_of(dict_in(info, "dest_pic_info", "the crop"), "output")
            first = {"resize_info": dict_in(info, "resize_info1", "the crop")}
            second = {**info, "resize_info": dict_in(info, "resize_info2", "the crop")}
            crop, paste, between = crop_of(info), paste_of(second), paste_of(first)
            check_inside(crop, one, "crop")
            check_inside(paste, other, "paste")
            size = between.width, between.height
            steps.append((one, other, crop, paste, size, (interpolation_of(first), interpolation_of(second))))

        def task() -> None:
            for one, other, crop, paste, size, how in steps:
                between = new_picture(one.format, *size)
                transfer(one, between, crop, None, how[0])
                transfer(between, other, None, paste, how[1], found.matrix)

        return found.submit(task)


def _sources(sources: Sequence[Dict], count: int, regions: Sequence[Dict], counts: Sequence[int]) -> list[Dict]:
    """The picture of every region."""
    if count != len(sources) or len(counts) != len(sources) or sum(counts) != len(regions) or min(counts, default=0) < 0:
        raise AclError(
            Code.INVALID_PARAM,
            f"{len(sources)} pictures, said to be {count}, with {len(counts)} counts that add up to {sum(counts)} for {len(regions)} "
            "regions; accepted: a count for each picture, together the number of regions",
        )
    return [source for source, own in zip(sources, counts, strict=True) for _ in range(own)]


def _frame(channel: int, sources: Sequence[Dict], regions: Sequence[Dict]) -> int:
    found = CHANNELS.get(channel)
    steps = []
    for source, info in zip(sources, regions, strict=True):
        one, other = picture_of(source, "input"), picture_of(dict_in(info, "dest_pic_info", "the crop"), "output")
        crop = crop_of(info)
        check_inside(crop, one, "crop")
        steps.append((one, other, crop, border_of(info, _around(info, other)), interpolation_of(info)))

    def task() -> None:
        for one, other, crop, border, how in steps:
            cut_and_frame(one.view(crop), other.view(), border, how, found.matrix)

    return found.submit(task)


def _around(info: Dict, target: Picture) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of the border. Raises AclError where the scaled region does not fit."""
    size = dict_in(info, "resize_info", "the crop")
    width, height = (number_in(size, key, "resize_info") for key in ("resize_width", "resize_height"))
    top, left = (number_in(info, key, "the crop") for key in ("dest_top_offset", "dest_left_offset"))
    bottom, right = target.height - height - top, target.width - width - left
    if min(width, height) < 1 or min(top, left, bottom, right) < 0:
        raise AclError(
            Code.INVALID_PARAM,
            f"{width} x {height} pixels at left {left}, top {top} do not fit into the output's {target.width} x {target.height}",
        )
    return top, bottom, left, right


@status("acl.himpi.vpc_set_chn_workspace")
def vpc_set_chn_workspace(channel: int, parameters: list[Any], count: int) -> None:
    """How large the pictures of a channel will be, of each function: said once. Memory for them is taken when they come, and kept."""
    with errors_of("VPC"):
        found = CHANNELS.get(channel)
        check_count(parameters, count)
        if not all(isinstance(each, dict) for each in parameters):
            raise AclError(Code.INVALID_PARAM, f"the workspaces are {parameters!r:.80}; accepted: a list of dicts")
        if found.workspaces:
            raise AclError(code_of("VPC", "NOT_PERM"), "the channel has its workspaces already, which do not change")
        found.workspaces = list(parameters)
