"""acl.himpi: settings of encoders: what is used, and what is only kept so that programs read what they set."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import dict_in, errors_of, number_in
from anycann.acl.himpi_venc_channel import CHANNELS, H264, H265, JPEG
from anycann.acl.process import PROCESS

_QUALITIES = range(1, 101)
_THRESHOLDS = 16
_MODULES = {1: "venc_mod_param", 2: "h264_mod_param", 3: "h265_mod_param", 4: "jpeg_mod_param"}
_CODEC = dict.fromkeys(("one_stream_buf", "mini_buf_mode", "low_power_mode", "vb_src", "qp_hist_en", "max_user_data_len"), 0)
_MODULE_DEFAULTS: dict[str, dict[str, int]] = {
    "venc_mod_param": {"buf_cache": 0, "frame_buf_recycle": 0},
    "h264_mod_param": _CODEC,
    "h265_mod_param": _CODEC,
    "jpeg_mod_param": {"one_stream_buf": 0, "mini_buf_mode": 0, "clear_stream_buf": 0, "dering_mode": 0},
}
_NO_EFFECT = "it is kept and read again, and changes nothing"
# what functions in pairs get and set, and what is there before
_KEPT: dict[str, dict[str, Any]] = {
    "chn_param": {
        "color_to_grey_en": 0, "priority": 0, "max_stream_cnt": 0, "poll_wake_up_frame_cnt": 1,
        "crop_info": {"enable": 0, "rect": {"x": 0, "y": 0, "width": 0, "height": 0}},
        "frame_rate": {"src_frame_rate": -1, "dst_frame_rate": -1},
    },
    "cu_pred": {}, "h264_vui": {}, "h265_vui": {}, "intra_refresh": {}, "ref_param": {}, "roi_attr": {}, "slice_split": {},
    "streamcopy_param": {},
    "jpeg_huffman_param": {
        "dc_tables": [{"dc_bits": [0] * 16, "dc_value": [0] * 12} for _ in range(3)],
        "ac_tables": [{"ac_bits": [0] * 16, "ac_value": [0] * 162} for _ in range(3)], "reserved": [0, 0],
    },
}  # fmt: skip
_MODULE_PARAMETERS: dict[str, dict[str, Any]] = {}
PROCESS.ending.append(_MODULE_PARAMETERS.clear)


def _declare_pair(name: str, before: dict[str, Any]) -> None:
    @status(f"acl.himpi.venc_set_{name}", limits=_NO_EFFECT)
    def set_it(channel: int, parameters: dict[str, Any]) -> None:
        """Keep a setting."""
        with errors_of("VENC"):
            CHANNELS.get(channel).settings[name] = deepcopy(dict(parameters))

    @value_and_status(f"acl.himpi.venc_get_{name}", failed=({},), returns="(dict, ret)", limits=_NO_EFFECT)
    def get_it(channel: int) -> dict[str, Any]:
        """What was set."""
        with errors_of("VENC"):
            return deepcopy(CHANNELS.get(channel).settings.get(name, before))


for _name, _before in _KEPT.items():
    _declare_pair(_name, _before)


# ---- what is used
@value_and_status("acl.himpi.venc_get_jpeg_param", failed=({},), returns="(dict, ret)")
def venc_get_jpeg_param(channel: int) -> dict[str, Any]:
    """What JPEG files are made with: {qfactor: 1 to 100, ...}."""
    with errors_of("VENC"):
        return deepcopy(CHANNELS.get(channel).jpeg)


@status("acl.himpi.venc_set_jpeg_param", limits="qfactor is used, quantisation tables are not")
def venc_set_jpeg_param(channel: int, parameters: dict[str, Any]) -> None:
    """Change what JPEG files are made with, from the next picture on."""
    with errors_of("VENC"):
        found, quality = CHANNELS.get(channel), number_in(parameters, "qfactor", "hi_venc_jpeg_param")
        if found.kind != JPEG:
            raise AclError(Code.INVALID_PARAM, "the channel encodes video; accepted: a channel of JPEG")
        if quality not in _QUALITIES:
            raise AclError(Code.INVALID_PARAM, f"qfactor is {quality}; accepted: 1 to 100")
        found.jpeg.update(deepcopy(dict(parameters)))


@value_and_status("acl.himpi.venc_get_chn_attr", failed=({},), returns="(dict, ret)")
def venc_get_chn_attr(channel: int) -> dict[str, Any]:
    """What the channel was created with, or what was set since."""
    with errors_of("VENC"):
        return deepcopy(CHANNELS.get(channel).attributes)


@status("acl.himpi.venc_set_chn_attr", limits="a bit rate set while the channel is there is kept and not used")
def venc_set_chn_attr(channel: int, attributes: dict[str, Any]) -> None:
    """Other attributes of the same type and size."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        given = dict_in(attributes, "venc_attr", "hi_venc_chn_attr")
        wanted = tuple(given.get(name) for name in ("type", "pic_width", "pic_height"))
        if wanted != (found.kind, found.width, found.height):
            raise AclError(Code.INVALID_PARAM, f"type and size {wanted}; they stay {(found.kind, found.width, found.height)}")
        found.attributes = deepcopy(dict(attributes))


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


# ---- what is only kept
@status("acl.himpi.venc_set_rc_param", limits=_NO_EFFECT)
def venc_set_rc_param(channel: int, parameters: dict[str, Any]) -> None:
    """How the bit rate is kept."""
    with errors_of("VENC"):
        CHANNELS.get(channel).settings["rc_param"] = deepcopy(dict(parameters))


@value_and_status("acl.himpi.venc_get_rc_param", failed=({},), returns="(dict, ret)", limits=_NO_EFFECT)
def venc_get_rc_param(channel: int, mode: int) -> dict[str, Any]:
    """How the bit rate is kept. `mode`: that of the channel."""
    with errors_of("VENC"):
        before = {f"threshold_{letter}": [0] * _THRESHOLDS for letter in "ipb"} | {
            "direction": 0, "row_qp_delta": 0, "first_frame_start_qp": -1,
            "scene_chg_detect": {"detect_scene_chg_en": 0, "adapt_insert_idr_frame_en": 0},
        }  # fmt: skip
        return deepcopy(CHANNELS.get(channel).settings.get("rc_param", before))


@status("acl.himpi.venc_set_scene_mode", limits=_NO_EFFECT)
def venc_set_scene_mode(channel: int, mode: int) -> None:
    """0 surveillance, 1 driving, streams, films."""
    with errors_of("VENC"):
        if mode not in (0, 1):
            raise AclError(Code.INVALID_PARAM, f"scene mode {mode}; accepted: 0, 1")
        CHANNELS.get(channel).settings["scene_mode"] = mode


@value_and_status("acl.himpi.venc_get_scene_mode", returns="(mode, ret)", limits=_NO_EFFECT)
def venc_get_scene_mode(channel: int) -> int:
    """What was set."""
    with errors_of("VENC"):
        return int(CHANNELS.get(channel).settings.get("scene_mode", 0))


@status("acl.himpi.venc_compact_jpeg_tables", limits=_NO_EFFECT)
def venc_compact_jpeg_tables(channel: int, tables: int, enable: int) -> None:
    """Whether tables that are alike are written once."""
    with errors_of("VENC"):
        CHANNELS.get(channel).settings["compact_jpeg_tables"] = (tables, bool(enable))


@status("acl.himpi.venc_set_mod_param", limits=_NO_EFFECT)
def venc_set_mod_param(parameters: dict[str, Any]) -> None:
    """Settings of all channels of a kind: {mod_type, h264_mod_param: {...}}."""
    with errors_of("VENC"):
        name = _module(parameters)
        _MODULE_PARAMETERS[name] = deepcopy(dict(dict_in(parameters, name, "hi_venc_mod_param")))


@value_and_status("acl.himpi.venc_get_mod_param", failed=({},), returns="(dict, ret)", limits=_NO_EFFECT)
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
