"""acl.himpi: what an encoder of video is told, from the attributes of its channel and the settings that were made since."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, code_of, dict_in, number_in
from anycann.acl.himpi_venc_rates import BIT_RATES, H264, H265, quantiser_limits, rate_mode
from anycann.media.video_encoder import ALL_QUANTISERS, Colours, EncoderSettings, Profile, Slices, Times

_PROFILES: dict[int, Profile] = {0: "baseline", 1: "main", 2: "high"}
_DEFAULT_RATE, _DEFAULT_INTERVAL = 25, 30
_BY_BYTES, _BY_ROWS = 0, 1  # how frames are split
# width and height of a pixel by aspect_ratio_idc (H.264, table E-1)
_ASPECTS = dict(enumerate(
    ((1, 1), (12, 11), (10, 11), (16, 11), (40, 33), (24, 11), (20, 11), (32, 11), (80, 33), (18, 11), (15, 11), (64, 33), (160, 99),
     (4, 3), (3, 2), (2, 1)), 1,
))  # fmt: skip
_EXTENDED, (_, _MOST_QUANTISER) = 255, ALL_QUANTISERS
_MOST_OF_A_BYTE, _MOST_TICKS = 255, (1 << 31) - 1


def encoder_settings(kind: int, attributes: Dict, settings: Mapping[str, Any]) -> EncoderSettings:
    """Raises AclError for what is not accepted."""
    given, rate = (dict_in(attributes, name, "hi_venc_chn_attr") for name in ("venc_attr", "rc_attr"))
    prefix = "h264_" if kind == H264 else "h265_"
    mode, own = rate_mode(kind, rate)
    profile = number_in(given, "profile", "venc_attr")
    if kind == H264 and profile not in _PROFILES:
        raise AclError(code_of("VENC", "NOT_SUPPORT"), f"profile {profile} of H.264; accepted: 0 (baseline), 1 (main), 2 (high)")
    usability = settings.get(f"{prefix}vui", {})
    return EncoderSettings(
        "h264" if kind == H264 else "hevc",
        _PROFILES[profile] if kind == H264 else "main",
        number_in(given, "pic_width", "venc_attr"),
        number_in(given, "pic_height", "venc_attr"),
        own.get("gop", _DEFAULT_INTERVAL),
        own.get("dst_frame_rate", _DEFAULT_RATE),
        next((own[name] for name in BIT_RATES if name in own), 0),
        _slices(kind, settings.get("slice_split", {})),
        bool(settings.get("intra_refresh", {}).get("refresh_enable", 0)),
        _colours(usability),
        _aspect(usability),
        _quantisers(own),
        *quantiser_limits(settings.get("rc_param", {}), mode),
        far_moves=bool(settings.get("scene_mode", 0)),
        times=_times(kind, usability),
    )


def _quantisers(rate: Dict) -> tuple[int, int] | None:
    """Of key frames and of others, where they are fixed."""
    if "i_qp" not in rate or "p_qp" not in rate:
        return None
    key, others = (number_in(rate, name, "rc_attr") for name in ("i_qp", "p_qp"))
    if not (0 <= key <= _MOST_QUANTISER and 0 <= others <= _MOST_QUANTISER):
        raise AclError(Code.INVALID_PARAM, f"i_qp {key} and p_qp {others} of rc_attr; accepted: 0 to {_MOST_QUANTISER}")
    return key, others


def _slices(kind: int, given: Dict) -> Slices | None:
    if not given.get("split_enable", 0):
        return None
    mode, size = (number_in(given, name, "hi_venc_slice_split") for name in ("split_mode", "split_size"))
    if mode not in (_BY_BYTES, _BY_ROWS) or size < 1:
        raise AclError(Code.INVALID_PARAM, f"split_mode {mode} and split_size {size}; accepted: 0 (bytes), 1 (rows of blocks); at least 1")
    if kind == H265:  # the library holds a frame back then
        return None
    return Slices(size, 0) if mode == _BY_BYTES else Slices(0, size)


def _part(given: Dict, name: str, flag: str) -> Dict:
    """What is said of one thing; nothing if it is not."""
    found = given.get(name, {})
    return found if isinstance(found, dict) and found.get(flag, 0) else {}


def _colours(usability: Dict) -> Colours | None:
    given = _part(usability, "vui_video_signal", "video_signal_type_present_flag")
    if not given:
        return None
    names = ("colour_primaries", "transfer_characteristics", "matrix_coefficients")
    described = given.get("colour_description_present_flag", 0)
    numbers = [number_in(given, name, "hi_venc_vui_video_signal") if described else 2 for name in names]
    if not all(0 <= number <= _MOST_OF_A_BYTE for number in numbers):
        raise AclError(Code.INVALID_PARAM, f"{', '.join(names)} {numbers}; accepted: 0 to {_MOST_OF_A_BYTE}")
    return Colours(bool(given.get("video_full_range_flag", 0)), *numbers)


def _times(kind: int, usability: Dict) -> Times | None:
    """What a stream says of its times, where it says anything of its own."""
    given = _part(usability, "vui_time_info", "timing_info_present_flag")
    if not given:
        return None
    ticks, scale = (number_in(given, name, "hi_venc_vui_time_info") for name in ("num_units_in_tick", "time_scale"))
    if not (0 < ticks <= _MOST_TICKS and 0 < scale <= _MOST_TICKS):
        raise AclError(Code.INVALID_PARAM, f"num_units_in_tick {ticks} and time_scale {scale}; accepted: 1 to {_MOST_TICKS}")
    if kind == H264:
        return Times(Fraction(scale, ticks))
    more = int(given.get("num_ticks_poc_diff_one_minus1", 0))
    if not 0 <= more < _MOST_TICKS:
        raise AclError(Code.INVALID_PARAM, f"num_ticks_poc_diff_one_minus1 {more}; accepted: 0 to {_MOST_TICKS - 1}")
    return Times(Fraction(scale, ticks), more + 1)


def _aspect(usability: Dict) -> Fraction | None:
    given = _part(usability, "vui_aspect_ratio", "aspect_ratio_info_present_flag")
    if not given:
        return None
    number = number_in(given, "aspect_ratio_idc", "hi_venc_vui_aspect_ratio")
    own = number == _EXTENDED
    wide, high = (
        (number_in(given, f"sar_{axis}", "vui_aspect_ratio") for axis in ("width", "height")) if own else _ASPECTS.get(number, (0, 0))
    )
    if wide < 1 or high < 1:
        raise AclError(
            Code.INVALID_PARAM, f"aspect_ratio_idc {number} with {wide} : {high}; accepted: 1 to 16, or 255 with sar_width, sar_height"
        )
    return Fraction(wide, high)
