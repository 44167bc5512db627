"""acl.himpi: settings of encoders: what is used, and what is only kept so that programs read what they set."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import dict_in, errors_of, number_in
from anycann.acl.himpi_venc_channel import CHANNELS, JPEG, VencChannel
from anycann.acl.himpi_venc_jpeg import OWN_TABLES, QUALITIES, codes_from, shown
from anycann.acl.himpi_venc_rates import H264, H265, rate_parameters
from anycann.acl.process import PROCESS

_MODULES = {1: "venc_mod_param", 2: "h264_mod_param", 3: "h265_mod_param", 4: "jpeg_mod_param"}
_CODEC = dict.fromkeys(("one_stream_buf", "mini_buf_mode", "low_power_mode", "vb_src", "qp_hist_en", "max_user_data_len"), 0)
_MODULE_DEFAULTS: dict[str, dict[str, int]] = {
    "venc_mod_param": {"buf_cache": 0, "frame_buf_recycle": 0},
    "h264_mod_param": _CODEC,
    "h265_mod_param": _CODEC,
    "jpeg_mod_param": {"one_stream_buf": 0, "mini_buf_mode": 0, "clear_stream_buf": 0, "dering_mode": 0},
}
_COSTS = ("intra32_cost", "intra16_cost", "intra8_cost", "intra4_cost", "inter64_cost", "inter32_cost", "inter16_cost", "inter8_cost")
_USUAL_COST = 8
_NO_EFFECT = "it is kept and read again, and changes nothing"
_SHAPE = {"aspect_ratio_info_present_flag": 0, "aspect_ratio_idc": 1, "overscan_info_present_flag": 0, "overscan_appropriate_flag": 0,
          "sar_width": 1, "sar_height": 1}  # fmt: skip
_SIGNAL = {"video_signal_type_present_flag": 0, "video_format": 5, "video_full_range_flag": 1, "colour_description_present_flag": 0,
           "colour_primaries": 1, "transfer_characteristics": 1, "matrix_coefficients": 1}  # fmt: skip
_TIMES = {"timing_info_present_flag": 0, "num_units_in_tick": 1, "time_scale": 60}
_RESTRICTIONS = {"bitstream_restriction_flag": 0}


def _usability(times: dict[str, int]) -> dict[str, Any]:
    return {"vui_aspect_ratio": _SHAPE, "vui_time_info": times, "vui_video_signal": _SIGNAL, "vui_bitstream_restric": _RESTRICTIONS}


# what functions in pairs get and set: what is there before, and what is not done
_KEPT: dict[str, tuple[dict[str, Any], str]] = {
    "chn_param": ({"color_to_grey_en": 0, "priority": 0, "max_stream_cnt": 0, "poll_wake_up_frame_cnt": 1,
                   "crop_info": {"enable": 0, "rect": {"x": 0, "y": 0, "width": 0, "height": 0}},
                   "frame_rate": {"src_frame_rate": -1, "dst_frame_rate": -1}},
                  "priority and crop_info are kept and change nothing; poll_wake_up_frame_cnt holds for descriptors"),
    "h264_vui": (_usability({**_TIMES, "fixed_frame_rate_flag": 0}), "fixed_frame_rate_flag is 1 in the stream: x264 writes so"),
    "h265_vui": (_usability({**_TIMES, "num_ticks_poc_diff_one_minus1": 0}), ""),
    "intra_refresh": ({"refresh_enable": 0, "intra_refresh_mode": 0, "refresh_num": 0, "req_i_qp": 0},
                      "columns are coded anew, all of them within a gop: x264 and x265 know no rows and no number"),
    "slice_split": ({"split_enable": 0, "split_mode": 0, "split_size": 0, "slice_output_en": 0, "reserved": [0]},
                    "frames of H.265 are not split: x265 would hold each one back until the next comes"),
    "cu_pred": ({"pred_mode": 0, **dict.fromkeys(_COSTS, _USUAL_COST)}, f"{_NO_EFFECT}: x264 and x265 weigh kinds of blocks themselves"),
    "ref_param": ({"base": 1, "enhance": 0, "pred_en": 1}, f"{_NO_EFFECT}: x264 and x265 choose what a frame refers to"),
    "streamcopy_param": ({"copy_en": 0, "copy_interval": 0}, _NO_EFFECT),
}  # fmt: skip
_MODULE_PARAMETERS: dict[str, dict[str, Any]] = {}
PROCESS.ending.append(_MODULE_PARAMETERS.clear)


def _declare_pair(name: str, before: dict[str, Any], limits: str) -> None:
    @status(f"acl.himpi.venc_set_{name}", limits=limits)
    def set_it(channel: int, parameters: dict[str, Any]) -> None:
        """Change a setting, from the next picture on."""
        with errors_of("VENC"):
            found = CHANNELS.get(channel)
            found.use(found.attributes, {**found.settings, name: deepcopy(dict(parameters))})

    @value_and_status(f"acl.himpi.venc_get_{name}", failed=({},), returns="(dict, ret)")
    def get_it(channel: int) -> dict[str, Any]:
        """What was set."""
        with errors_of("VENC"):
            return deepcopy(CHANNELS.get(channel).settings.get(name, before))


for _name, (_before, _limits) in _KEPT.items():
    _declare_pair(_name, _before, _limits)


# ---- what is used
@value_and_status("acl.himpi.venc_get_jpeg_param", failed=({},), returns="(dict, ret)")
def venc_get_jpeg_param(channel: int) -> dict[str, Any]:
    """What JPEG files are made with: {qfactor: 1 to 100, ...}."""
    with errors_of("VENC"):
        return deepcopy(CHANNELS.get(channel).jpeg)


@status("acl.himpi.venc_set_jpeg_param")
def venc_set_jpeg_param(channel: int, parameters: dict[str, Any]) -> None:
    """Change what JPEG files are made with, from the next picture on: {qfactor: 1 to 100}.

    Or {qfactor: 0xFFFFFFFF, y_qt, cb_qt, cr_qt}: 64 steps of quantisation each, 1 to 255, row by row. The others are reserved.
    """
    with errors_of("VENC"):
        found, quality = _jpeg_channel(channel), number_in(parameters, "qfactor", "hi_venc_jpeg_param")
        if quality not in QUALITIES and quality != OWN_TABLES:
            raise AclError(Code.INVALID_PARAM, f"qfactor is {quality}; accepted: 1 to 100, or 0xFFFFFFFF with tables of one's own")
        found.use_jpeg({**found.jpeg, **deepcopy(dict(parameters))}, found.jpeg_codes, found.compact)


@value_and_status("acl.himpi.venc_get_jpeg_huffman_param", failed=({},), returns="(dict, ret)")
def venc_get_jpeg_huffman_param(channel: int) -> dict[str, Any]:
    """The Huffman tables of JPEG files: {dc_tables: [{dc_bits, dc_value}] * 3, ac_tables: [{ac_bits, ac_value}] * 3}, of Y, Cb and Cr."""
    with errors_of("VENC"):
        return shown(_jpeg_channel(channel).jpeg_codes)


@status("acl.himpi.venc_set_jpeg_huffman_param")
def venc_set_jpeg_huffman_param(channel: int, parameters: dict[str, Any]) -> None:
    """Change them, from the next picture on; those of Cb and Cr are the same."""
    with errors_of("VENC"):
        found = _jpeg_channel(channel)
        found.use_jpeg(found.jpeg, codes_from(parameters), found.compact)


@status("acl.himpi.venc_compact_jpeg_tables")
def venc_compact_jpeg_tables(channel: int, tables: int, enable: int) -> None:
    """Whether tables that are alike are written once, from the next picture on. tables: 0, of both kinds."""
    with errors_of("VENC"):
        found = _jpeg_channel(channel)
        if tables or enable not in (0, 1):
            raise AclError(Code.INVALID_PARAM, f"tables {tables}, enable {enable}; accepted: 0 (both kinds), and 0 or 1")
        found.use_jpeg(found.jpeg, found.jpeg_codes, bool(enable))


def _jpeg_channel(channel: int) -> VencChannel:
    found = CHANNELS.get(channel)
    if found.kind != JPEG:
        raise AclError(Code.INVALID_PARAM, "the channel encodes video; accepted: a channel of JPEG")
    return found


@value_and_status("acl.himpi.venc_get_chn_attr", failed=({},), returns="(dict, ret)")
def venc_get_chn_attr(channel: int) -> dict[str, Any]:
    """What the channel was created with, or what was set since."""
    with errors_of("VENC"):
        return deepcopy(CHANNELS.get(channel).attributes)


@status("acl.himpi.venc_set_chn_attr")
def venc_set_chn_attr(channel: int, attributes: dict[str, Any]) -> None:
    """Other attributes of the same type and size, used from the next picture on: another bit rate, gop, frame rate."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        given = dict_in(attributes, "venc_attr", "hi_venc_chn_attr")
        wanted = tuple(given.get(name) for name in ("type", "pic_width", "pic_height"))
        if wanted != (found.kind, found.width, found.height):
            raise AclError(Code.INVALID_PARAM, f"type and size {wanted}; they stay {(found.kind, found.width, found.height)}")
        found.use(deepcopy(dict(attributes)), found.settings)


@status(
    "acl.himpi.venc_set_rc_param",
    limits="one range of quantisers holds for all frames, as in x264 and x265; new scenes have key frames in H.264 only; the rest is kept",
)
def venc_set_rc_param(channel: int, parameters: dict[str, Any]) -> None:
    """How the bit rate is kept, from the next picture on."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        found.use(found.attributes, {**found.settings, "rc_param": deepcopy(dict(parameters))})


@value_and_status("acl.himpi.venc_get_rc_param", failed=({},), returns="(dict, ret)")
def venc_get_rc_param(channel: int, mode: int) -> dict[str, Any]:
    """How the bit rate is kept. `mode`: that of the channel."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        return deepcopy(found.settings.get("rc_param") or rate_parameters(found.kind, found.attributes))


# ---- maps of quantisation: a byte for each block of 16 x 16 pixels, rows as the chip aligns them
_BLOCK, _ROW_PIXELS, _MOST_PIXELS = 16, 256, 10000


@value("acl.himpi.venc_get_qpmap_stride", returns="bytes")
def venc_get_qpmap_stride(width: int) -> int:
    """Bytes of a row of a map for pictures that wide; 0 for more than 10000 pixels."""
    return -(-width // _ROW_PIXELS) * _ROW_PIXELS // _BLOCK if 0 <= width <= _MOST_PIXELS else 0


@value("acl.himpi.venc_get_qpmap_size", returns="bytes")
def venc_get_qpmap_size(kind: int, width: int, height: int) -> int:
    """Bytes of a map for pictures of a channel type, 96 H.264 or 265 H.265; 0 for others, and for more than 10000 pixels."""
    unit = {H264: _BLOCK, H265: 2 * _BLOCK}.get(kind)
    if unit is None or not 0 <= height <= _MOST_PIXELS:
        return 0
    return venc_get_qpmap_stride(width) * (-(-height // unit) * unit // _BLOCK)


@status("acl.himpi.venc_set_scene_mode")
def venc_set_scene_mode(channel: int, mode: int) -> None:
    """0 surveillance; 1 driving, streams, films: more moves, and moves are looked for further away, from the next picture on."""
    with errors_of("VENC"):
        if mode not in (0, 1):
            raise AclError(Code.INVALID_PARAM, f"scene mode {mode}; accepted: 0, 1")
        found = CHANNELS.get(channel)
        found.use(found.attributes, {**found.settings, "scene_mode": mode})


@value_and_status("acl.himpi.venc_get_scene_mode", returns="(mode, ret)")
def venc_get_scene_mode(channel: int) -> int:
    """What was set."""
    with errors_of("VENC"):
        return int(CHANNELS.get(channel).settings.get("scene_mode", 0))


# ---- what is only kept
@status("acl.himpi.venc_set_mod_param", limits=_NO_EFFECT)
def venc_set_mod_param(parameters: dict[str, Any]) -> None:
    """Settings of all channels of a kind: {mod_type, h264_mod_param: {...}}."""
    with errors_of("VENC"):
        name = _module(parameters)
        _MODULE_PARAMETERS[name] = deepcopy(dict(dict_in(parameters, name, "hi_venc_mod_param")))


@value_and_status("acl.himpi.venc_get_mod_param", failed=({},), returns="(dict, ret)")
def venc_get_mod_param(parameters: dict[str, Any]) -> dict[str, Any]:
    """What was set, for {mod_type}."""
    with errors_of("VENC"):
        name = _module(parameters)
        return {"mod_type": parameters["mod_type"], name: dict(_MODULE_PARAMETERS.get(name, _MODULE_DEFAULTS[name]))}


def _module(parameters: dict[str, Any]) -> str:
    number = number_in(parameters, "mod_type", "hi_venc_mod_param")
    if number not in _MODULES:
        known = ", ".join(f"{kind} ({name.removesuffix('_mod_param')})" for kind, name in _MODULES.items())
        raise AclError(Code.INVALID_PARAM, f"mod_type {number}; accepted: {known}")
    return _MODULES[number]
