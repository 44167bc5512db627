"""acl.himpi: regions of pictures that encoders keep better than the rest, or worse."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import code_of, dict_in, errors_of, number_in
from anycann.acl.himpi_venc_channel import CHANNELS, JPEG, REGION, VencChannel
from anycann.media.regions import Region
from anycann.media.video_encoder import ALL_QUANTISERS

_REGIONS, _BLOCK = 8, 16
_RECTANGLE = ("x", "y", "width", "height")
_ABSOLUTE = "an absolute quantiser is reached from the mean one of the frame before; not with fixed quantisers"


@status("acl.himpi.venc_set_roi_attr", limits=_ABSOLUTE)
def venc_set_roi_attr(channel: int, parameters: dict[str, Any]) -> None:
    """A region of interest, from the next picture on: {idx: 0 to 7, enable, is_abs_qp, qp, rect: {x, y, width, height}}.

    qp: by how much the quantiser differs there, -51 to 51, or, with is_abs_qp, what it is. The rectangle lies within the picture, all four
    in steps of 16. Of regions that overlap the one with the greatest idx holds.
    """
    with errors_of("VENC"):
        found, number = _video_channel(channel), _region_number(number_in(parameters, "idx", "hi_venc_roi_attr"))
        region = _region(found, parameters) if parameters.get("enable", 0) else None
        found.settings = {**found.settings, f"roi_attr{number}": deepcopy(dict(parameters)), f"{REGION}{number}": region}


def _region(channel: VencChannel, parameters: dict[str, Any]) -> Region:
    rect, absolute = dict_in(parameters, "rect", "hi_venc_roi_attr"), bool(parameters.get("is_abs_qp", 0))
    left, top, width, height = (number_in(rect, name, "rect") for name in _RECTANGLE)
    inside = left >= 0 and top >= 0 and left + width <= channel.width and top + height <= channel.height and min(width, height) > 0
    if not inside or any(number % _BLOCK for number in (left, top, width, height)):
        raise AclError(
            Code.INVALID_PARAM,
            f"a region of {width} x {height} at {left}, {top}; accepted: multiples of {_BLOCK}, within {channel.width} x {channel.height}",
        )
    quantiser, most = number_in(parameters, "qp", "hi_venc_roi_attr"), ALL_QUANTISERS[1]
    if not (0 if absolute else -most) <= quantiser <= most:
        raise AclError(Code.INVALID_PARAM, f"qp is {quantiser}; accepted: {0 if absolute else -most} to {most}")
    return Region(left, top, width, height, quantiser, absolute)


@value_and_status("acl.himpi.venc_get_roi_attr", failed=({},), returns="(dict, ret)")
def venc_get_roi_attr(channel: int, number: int) -> dict[str, Any]:
    """What was set of region `number`."""
    with errors_of("VENC"):
        before = {"idx": _region_number(number), "enable": 0, "is_abs_qp": 0, "qp": 0, "rect": dict.fromkeys(_RECTANGLE, 0)}
        return deepcopy(_video_channel(channel).settings.get(f"roi_attr{number}", before))


def _video_channel(channel: int) -> VencChannel:
    found = CHANNELS.get(channel)
    if found.kind == JPEG:
        raise AclError(code_of("VENC", "NOT_SUPPORT"), "the channel encodes JPEG files; accepted: a channel of video")
    return found


def _region_number(number: int) -> int:
    if number not in range(_REGIONS):
        raise AclError(Code.INVALID_PARAM, f"region {number}; accepted: 0 to {_REGIONS - 1}")
    return number
