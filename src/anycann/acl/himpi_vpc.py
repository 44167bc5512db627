"""acl.himpi: pictures cut, scaled, pasted, converted and framed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from anycann.acl.codes import Code
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, errors_of, number_in, picture_of
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.acl.media_configs import BORDER_TYPES
from anycann.media.filters import Border, add_border
from anycann.media.picture import Picture, Region
from anycann.media.resize import Interpolation
from anycann.media.scale import check_inside, transfer

_INTERPOLATIONS = {0: Interpolation.BILINEAR, 1: Interpolation.BILINEAR, 2: Interpolation.NEAREST}
_OPAQUE = 255
Transfer: TypeAlias = tuple[Dict, Dict, Region | None, Region | None, Interpolation]  # input, output, crop, paste


def submit_transfers(channel: int, pairs: Sequence[Transfer]) -> int:
    """Do them later, in order; the number of the task. Raises AclError for pictures and regions that do not go together."""
    found = CHANNELS.get(channel)
    for source, target, crop, paste, _ in pairs:
        one, other = picture_of(source, "input"), picture_of(target, "output")
        check_inside(crop or one.whole, one, "crop")
        check_inside(paste or other.whole, other, "paste")
    given = [(dict(source), dict(target), crop, paste, chosen) for source, target, crop, paste, chosen in pairs]

    def task() -> None:
        for source, target, crop, paste, chosen in given:
            transfer(picture_of(source, "input"), picture_of(target, "output"), crop, paste, chosen, found.matrix)

    return found.submit(task)


def _interpolation(number: int) -> Interpolation:
    if number not in _INTERPOLATIONS:
        raise AclError(Code.INVALID_PARAM, f"resize interpolation {number} is not supported; accepted: 0 and 1 (bilinear), 2 (nearest)")
    return _INTERPOLATIONS[number]


def crop_of(info: Dict) -> Region:
    """crop_region of a region."""
    region = dict_in(info, "crop_region", "the crop")
    left, top, width, height = (number_in(region, key, "crop_region") for key in ("left_offset", "top_offset", "crop_width", "crop_height"))
    return Region(left, left + width - 1, top, top + height - 1)


def paste_of(info: Dict) -> Region:
    """Where the scaled region goes: resize_info's size, from the offsets on (0 where there are none)."""
    size = dict_in(info, "resize_info", "the crop")
    width, height = (number_in(size, key, "resize_info") for key in ("resize_width", "resize_height"))
    left, top = info.get("dest_left_offset", 0), info.get("dest_top_offset", 0)
    return Region(left, left + width - 1, top, top + height - 1)


def interpolation_of(info: Dict) -> Interpolation:
    """resize_info's interpolation."""
    return _interpolation(number_in(dict_in(info, "resize_info", "the crop"), "interpolation", "resize_info"))


def check_count(infos: Sequence[object], count: int) -> None:
    """Raises AclError where a list is not as long as a program says."""
    if len(infos) != count:
        raise AclError(Code.INVALID_PARAM, f"{len(infos)} regions, and the count says {count}; accepted: the same")


def _regions(channel: int, source: Dict, infos: list[Dict], count: int, scaled: bool) -> int:
    check_count(infos, count)
    pairs = []
    for info in infos:
        how = interpolation_of(info) if scaled else _INTERPOLATIONS[0]
        pairs.append((source, dict_in(info, "dest_pic_info", "the crop"), crop_of(info), paste_of(info) if scaled else None, how))
    return submit_transfers(channel, pairs)


@value_and_status("acl.himpi.vpc_resize", returns="(task, ret)")
def vpc_resize(
    channel: int, source: dict[str, Any], target: dict[str, Any], fx: float, fy: float, interpolation: int, timeout_ms: int
) -> int:
    """Scale a picture to the size of another; fx and fy are 0 or say the same. interpolation: 0 and 1 bilinear, 2 nearest."""
    with errors_of("VPC"):
        return submit_transfers(channel, [(source, target, None, None, _interpolation(interpolation))])


@value_and_status("acl.himpi.vpc_crop", returns="(task, ret)")
def vpc_crop(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut regions: {dest_pic_info, crop_region} each, scaled to the picture they go to."""
    with errors_of("VPC"):
        return _regions(channel, source, regions, count, scaled=False)


@value_and_status("acl.himpi.vpc_crop_resize", returns="(task, ret)")
def vpc_crop_resize(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut and scale regions: {dest_pic_info, crop_region, resize_info} each."""
    with errors_of("VPC"):
        return _regions(channel, source, regions, count, scaled=True)


@value_and_status("acl.himpi.vpc_crop_resize_paste", returns="(task, ret)")
def vpc_crop_resize_paste(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut, scale and paste regions: as vpc_crop_resize, with dest_top_offset and dest_left_offset."""
    with errors_of("VPC"):
        return _regions(channel, source, regions, count, scaled=True)


@value_and_status("acl.himpi.vpc_convert_color", returns="(task, ret)")
def vpc_convert_color(channel: int, source: dict[str, Any], target: dict[str, Any], timeout_ms: int) -> int:
    """Convert a picture to the format of another of the same size."""
    with errors_of("VPC"):
        return _convert(channel, source, target)


@value_and_status("acl.himpi.vpc_convert_color_v2", returns="(task, ret)")
def vpc_convert_color_v2(
    channel: int, source: dict[str, Any], target: dict[str, Any], configuration: dict[str, Any], timeout_ms: int
) -> int:
    """As vpc_convert_color, with the alpha that a format with one gets: {alpha: 0 to 255, ...}."""
    with errors_of("VPC"):
        alpha = number_in(configuration, "alpha", "hi_csc_conf")
        if not 0 <= alpha <= _OPAQUE:
            raise AclError(Code.INVALID_PARAM, f"alpha is {alpha}; accepted: 0 to {_OPAQUE}")
        return _convert(channel, source, target, alpha)


@value_and_status("acl.himpi.vpc_convert_color_to_yuv420", returns="(task, ret)")
def vpc_convert_color_to_yuv420(channel: int, source: dict[str, Any], target: dict[str, Any], timeout_ms: int) -> int:
    """As vpc_convert_color, to YUV420SP."""
    with errors_of("VPC"):
        if picture_of(target, "output").format.number not in (1, 2):
            raise AclError(Code.INVALID_PARAM, f"the output has format {target['picture_format']}; accepted: 1, 2 (YUV420SP)")
        return _convert(channel, source, target)


def _convert(channel: int, source: Dict, target: Dict, alpha: int = _OPAQUE) -> int:
    one, other = picture_of(source, "input"), picture_of(target, "output")
    if (one.width, one.height) != (other.width, other.height):
        raise AclError(
            Code.INVALID_PARAM,
            f"the input has {one.width} x {one.height} pixels, the output {other.width} x {other.height}; accepted: the same",
        )
    found = CHANNELS.get(channel)

    def task() -> None:
        transfer(one, other, matrix=found.matrix)
        if "A" in other.format.order:
            other.view().planes[0][..., other.format.order.index("A")] = alpha

    return found.submit(task)


@value_and_status("acl.himpi.vpc_copy_make_border", returns="(task, ret)")
def vpc_copy_make_border(channel: int, source: dict[str, Any], target: dict[str, Any], border: dict[str, Any], timeout_ms: int) -> int:
    """Copy a picture and put a border around it: {top, bottom, left, right, border_type, scalar_value: {val: [...]}}."""
    with errors_of("VPC"):
        found, wanted = CHANNELS.get(channel), _border(border)
        pictures: tuple[Picture, Picture] = picture_of(source, "input"), picture_of(target, "output")
        return found.submit(lambda: add_border(pictures[0].view(), pictures[1].view(), wanted))


def _border(given: Dict) -> Border:
    sides = tuple(number_in(given, key, "the border") for key in ("top", "bottom", "left", "right"))
    return border_of(given, sides)


def border_of(given: Dict, sides: Sequence[int]) -> Border:
    """border_type and scalar_value, with the rows and columns at top, bottom, left and right."""
    kind = number_in(given, "border_type", "the border")
    if kind not in BORDER_TYPES:
        raise AclError(
            Code.INVALID_PARAM, f"border type {kind}; accepted: {', '.join(f'{key} ({name})' for key, name in BORDER_TYPES.items())}"
        )
    top, bottom, left, right = sides
    return Border(BORDER_TYPES[kind], top, bottom, left, right, values_of(given))


def values_of(given: Dict) -> tuple[int, ...]:
    """Four samples of scalar_value."""
    values = [int(min(max(number, 0), 255)) for number in dict_in(given, "scalar_value", "the border").get("val", ())]
    return tuple((values + [0] * 4)[:4])
