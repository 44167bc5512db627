"""acl.himpi: how an encoder of video keeps its bit rate: modes, their numbers, and which numbers these take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, number_in
from anycann.media.video_encoder import ALL_QUANTISERS

H264, H265 = 96, 265
BIT_RATES = ("bit_rate", "max_bit_rate", "target_bit_rate")
_PREFIXES = {H264: "h264_", H265: "h265_"}
_WAYS = ("cbr", "vbr", "avbr", "qvbr", "cvbr", "fixqp", "qpmap")
_MODES = {first + at: prefix + way for first, prefix in ((1, "h264_"), (11, "h265_")) for at, way in enumerate(_WAYS)}
_BITS, _FRAMES = (2, 614400), (1, 240)
# entries of rc_attr, least and most
_ATTRIBUTES = {"gop": (1, 65536), "stats_time": (1, 60), "src_frame_rate": _FRAMES, "dst_frame_rate": _FRAMES,
               "short_term_stats_time": (1, 120), "long_term_stats_time": (1, 1440), "long_term_max_bit_rate": _BITS,
               "long_term_min_bit_rate": (0, _BITS[1]), **dict.fromkeys(BIT_RATES, _BITS)}  # fmt: skip
_MOST = ALL_QUANTISERS[1]
# entries of rc_param of each mode: least, most, and what is there before
_ALWAYS = {"max_i_proportion": (1, 100, 100), "min_i_proportion": (1, 100, 1), "max_qp": (0, _MOST, _MOST), "min_qp": (0, _MOST, 0),
           "max_i_qp": (0, _MOST, _MOST), "min_i_qp": (0, _MOST, 0), "max_reencode_times": (0, 3, 0), "qpmap_en": (0, 1, 0)}  # fmt: skip
_BEGINNING = {"chg_pos": (50, 100, 90)}
_OWN: dict[str, dict[str, tuple[int, int, int]]] = {
    "vbr": _BEGINNING,
    "avbr": {**_BEGINNING, "min_still_percent": (5, 100, 25), "max_still_qp": (0, _MOST, _MOST), "min_still_psnr": (0, 1 << 32, 0),
             "min_qp_delta": (0, 4, 0), "motion_sensitivity": (0, 100, 100)},
    "qvbr": {"max_bit_percent": (30, 180, 180), "min_bit_percent": (30, 180, 30), "max_psnr_fluctuate": (18, 40, 40),
             "min_psnr_fluctuate": (18, 40, 18)},
    "cvbr": {"max_qp_delta": (0, 4, 0), "min_qp_delta": (0, 4, 0), "extra_bit_percent": (0, 1000, 0),
             "long_term_stats_time_unit": (1, 1800, 1)},
}  # fmt: skip
_ONLY_H265 = {"qpmap_mode": (0, 2, 0)}
_ONLY_H264 = {"avbr": {"save_bitrate_en": (0, 1, 0)}, "cvbr": {"save_bitrate_en": (0, 1, 0)}}
_ORDERED = ("qp", "i_qp", "i_proportion", "bit_percent", "psnr_fluctuate")  # min_ and max_ of these
_THRESHOLDS = 16
_FIXED = ("fixqp", "qpmap")  # modes without limits of their own


def rate_mode(kind: int, rate: Dict) -> tuple[str, Dict]:
    """The entry of rc_attr that is the channel's: h264_cbr, h265_vbr, ...; no name where there is none. Raises AclError for wrong ones."""
    prefix = _PREFIXES.get(kind, "no video")
    if kind in _PREFIXES and "rc_mode" in rate:
        name = _MODES.get(number_in(rate, "rc_mode", "rc_attr"), "")
        if not name.startswith(prefix):
            known = ", ".join(f"{number} ({mode})" for number, mode in _MODES.items() if mode.startswith(prefix))
            raise AclError(Code.INVALID_PARAM, f"rc_mode is {rate['rc_mode']}; accepted: {known}")
        found = dict_in(rate, name, "rc_attr")
    else:
        name, found = next(((name, own) for name, own in rate.items() if name.startswith(prefix) and isinstance(own, dict)), ("", {}))
    for entry, (least, most) in _ATTRIBUTES.items():
        if entry in found:
            _check(found, entry, least, most, name)
    rates = [found.get(f"{side}_frame_rate", _FRAMES[at]) for at, side in ((1, "src"), (0, "dst"))]
    if rates[1] > rates[0]:
        raise AclError(Code.INVALID_PARAM, f"dst_frame_rate {rates[1]} of {name} is more than src_frame_rate {rates[0]}")
    return name, found


def _check(given: Dict, entry: str, least: int, most: int, where: str) -> int:
    number = number_in(given, entry, where)
    if not least <= number <= most:
        raise AclError(Code.INVALID_PARAM, f"{entry} of {where} is {number}; accepted: {least} to {most}")
    return number


def _entries(mode: str) -> dict[str, tuple[int, int, int]]:
    """Those of rc_param of a mode."""
    codec, _, way = mode.partition("_")
    more = _ONLY_H265 if codec == "h265" else _ONLY_H264.get(way, {})
    return {**_ALWAYS, **_OWN.get(way, {}), **more}


def rate_parameters(kind: int, attributes: Dict) -> dict[str, Any]:
    """What holds of a channel's rate until it is set: the library's own ways."""
    mode, _ = rate_mode(kind, attributes.get("rc_attr", {}))
    before = {name: first for name, (_, _, first) in _entries(mode).items()}
    own = {} if not mode or mode.endswith(_FIXED) else {f"{mode}_param": before}
    return {f"threshold_{letter}": [0] * _THRESHOLDS for letter in "ipb"} | {
        "direction": 0, "row_qp_delta": 0, "first_frame_start_qp": -1,
        "scene_chg_detect": {"detect_scene_chg_en": 0, "adapt_insert_idr_frame_en": 0}, **own,
    }  # fmt: skip


def quantiser_limits(given: Dict, mode: str) -> tuple[tuple[int, int], bool]:
    """The least and the greatest quantiser of any frame, and whether a new scene begins with a key frame. Raises AclError."""
    where, entries = f"{mode}_param", _entries(mode)
    own = {**{name: before for name, (_, _, before) in entries.items()}, **_own(given, where)}
    for name, (least, most, _) in entries.items():
        _check(own, name, least, most, where)
    for name in _ORDERED:
        if f"min_{name}" in entries and own[f"min_{name}"] > own[f"max_{name}"]:
            raise AclError(Code.INVALID_PARAM, f"min_{name} {own[f'min_{name}']} of {where} is more than max_{name} {own[f'max_{name}']}")
    scenes = _own(given, "scene_chg_detect")
    with_keys = bool(scenes.get("detect_scene_chg_en", 0) and scenes.get("adapt_insert_idr_frame_en", 0))
    return (min(own["min_qp"], own["min_i_qp"]), max(own["max_qp"], own["max_i_qp"])), with_keys


def _own(given: Dict, name: str) -> Dict:
    return dict_in(given, name, "hi_venc_rc_param") if name in given else {}


def frame_rates(kind: int, attributes: Dict, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Frames a second that come, and that are coded; -1: as many as come. Those of chn_param, or those of the channel."""
    channel = settings.get("chn_param", {})
    own = dict_in(channel, "frame_rate", "hi_venc_chn_param") if "frame_rate" in channel else {}
    name, rate = rate_mode(kind, attributes.get("rc_attr", {}))
    for given, word in ((own, "frame_rate"), (rate, name)):
        coming, coded = (number_in(given, f"{side}_frame_rate", word) if f"{side}_frame_rate" in given else -1 for side in ("src", "dst"))
        if min(coming, coded) > 0:
            return coming, coded
    return -1, -1
