"""acl.himpi: what an encoder of video is told, from the attributes of its channel and the settings that were made since."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, code_of, dict_in, number_in
from anycann.media.video_encoder import ALL_QUANTISERS, Colours, EncoderSettings, Profile, Slices, Times

H264, H265 = 96, 265
_PROFILES: dict[int, Profile] = {0: "baseline", 1: "main", 2: "high"}
_DEFAULT_RATE, _DEFAULT_INTERVAL = 25, 30
_RATES = ("bit_rate", "max_bit_rate", "target_bit_rate")
_BY_BYTES, _BY_ROWS = 0, 1  # how frames are split
# width and height of a pixel by aspect_ratio_idc (H.264, table E-1)
_ASPECTS = dict(enumerate(
    ((1, 1), (12, 11), (10, 11), (16, 11), (40, 33), (24, 11), (20, 11), (32, 11), (80, 33), (18, 11), (15, 11), (64, 33), (160, 99),
     (4, 3), (3, 2), (2, 1)), 1,
))  # fmt: skip
_EXTENDED, (_, _MOST_QUANTISER) = 255, ALL_QUANTISERS
_THRESHOLDS, _MOST_OF_A_BYTE = 16, 255
_FIXED = ("fixqp", "qpmap")  # modes without limits of their own
_LIMITS = {"max_i_proportion": 100, "min_i_proportion": 1, "max_qp": _MOST_QUANTISER, "min_qp": 0, "max_i_qp": _MOST_QUANTISER,
           "min_i_qp": 0, "max_reencode_times": 0, "qpmap_en": 0}  # fmt: skip


def encoder_settings(kind: int, attributes: Dict, settings: Mapping[str, Any]) -> EncoderSettings:
    """Raises AclError for what is not accepted."""
    given, rate = (dict_in(attributes, name, "hi_venc_chn_attr") for name in ("venc_attr", "rc_attr"))
    prefix = "h264_" if kind == H264 else "h265_"
    mode, own = _rate_mode(kind, rate)
    profile = number_in(given, "profile", "venc_attr")
    if kind == H264 and profile not in _PROFILES:
        raise AclError(code_of("VENC", "NOT_SUPPORT"), f"profile {profile} of H.264; accepted: 0 (baseline), 1 (main), 2 (high)")
    interval, frames = int(own.get("gop", _DEFAULT_INTERVAL)), int(own.get("dst_frame_rate", _DEFAULT_RATE))
    if interval < 1 or frames < 1:
        raise AclError(Code.INVALID_PARAM, f"gop {interval} and dst_frame_rate {frames} of rc_attr; accepted: at least 1")
    usability = settings.get(f"{prefix}vui", {})
    return EncoderSettings(
        "h264" if kind == H264 else "hevc",
        _PROFILES[profile] if kind == H264 else "main",
        number_in(given, "pic_width", "venc_attr"),
        number_in(given, "pic_height", "venc_attr"),
        interval,
        frames,
        next((int(own[name]) for name in _RATES if name in own), 0),
        _slices(kind, settings.get("slice_split", {})),
        bool(settings.get("intra_refresh", {}).get("refresh_enable", 0)),
        _colours(usability),
        _aspect(usability),
        _quantisers(own),
        *_limits(settings.get("rc_param", {}), mode),
        far_moves=bool(settings.get("scene_mode", 0)),
        times=_times(kind, usability),
    )


def rate_parameters(kind: int, attributes: Dict) -> dict[str, Any]:
    """What holds of a channel's rate until it is set: the library's own ways."""
    mode, _ = _rate_mode(kind, attributes.get("rc_attr", {}))
    own = {} if not mode or mode.endswith(_FIXED) else {f"{mode}_param": dict(_LIMITS)}
    return {f"threshold_{letter}": [0] * _THRESHOLDS for letter in "ipb"} | {
        "direction": 0, "row_qp_delta": 0, "first_frame_start_qp": -1,
        "scene_chg_detect": {"detect_scene_chg_en": 0, "adapt_insert_idr_frame_en": 0}, **own,
    }  # fmt: skip


def frame_rates(kind: int, attributes: Dict, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Frames a second that come, and that are coded; -1: as many as come. Those of chn_param, or those of the channel."""
    channel = settings.get("chn_param", {})
    own = dict_in(channel, "frame_rate", "hi_venc_chn_param") if "frame_rate" in channel else {}
    name, rate = _rate_mode(kind, attributes.get("rc_attr", {}))
    for given, word in ((own, "frame_rate"), (rate, name)):
        coming, coded = (number_in(given, f"{side}_frame_rate", word) if f"{side}_frame_rate" in given else -1 for side in ("src", "dst"))
        if min(coming, coded) > 0:
            return coming, coded
    return -1, -1


def _rate_mode(kind: int, rate: Dict) -> tuple[str, Dict]:
    """The entry of rc_attr that is the channel's: h264_cbr, h265_vbr, ...; no name where there is none."""
    prefix = {H264: "h264_", H265: "h265_"}.get(kind, "no video")
    return next(((name, found) for name, found in rate.items() if name.startswith(prefix) and isinstance(found, dict)), ("", {}))


def _limits(given: Dict, mode: str) -> tuple[tuple[int, int], bool]:
    """The least and the greatest quantiser of any frame, and whether a new scene begins with a key frame."""
    own = {**_LIMITS, **_own(given, f"{mode}_param")}
    pairs = [(number_in(own, f"min_{kind}", f"{mode}_param"), number_in(own, f"max_{kind}", f"{mode}_param")) for kind in ("qp", "i_qp")]
    for least, most in pairs:
        if not 0 <= least <= most <= _MOST_QUANTISER:
            raise AclError(
                Code.INVALID_PARAM, f"quantisers {least} to {most} of {mode}_param; accepted: 0 to {_MOST_QUANTISER}, least first"
            )
    scenes = _own(given, "scene_chg_detect")
    with_keys = bool(scenes.get("detect_scene_chg_en", 0) and scenes.get("adapt_insert_idr_frame_en", 0))
    return (min(least for least, _ in pairs), max(most for _, most in pairs)), with_keys


def _own(given: Dict, name: str) -> Dict:
    return dict_in(given, name, "hi_venc_rc_param") if name in given else {}


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
    if not (0 < ticks < 1 << 31 and 0 < scale < 1 << 31):
        raise AclError(Code.INVALID_PARAM, f"num_units_in_tick {ticks} and time_scale {scale}; accepted: 1 to {(1 << 31) - 1}")
    if kind == H264:
        return Times(Fraction(scale, ticks), bool(given.get("fixed_frame_rate_flag", 0)), 0)
    more = int(given.get("num_ticks_poc_diff_one_minus1", 0))
    if not 0 <= more < 1 << 31:
        raise AclError(Code.INVALID_PARAM, f"num_ticks_poc_diff_one_minus1 {more}; accepted: 0 to {(1 << 31) - 1}")
    return Times(Fraction(scale, ticks), False, more + 1)


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
