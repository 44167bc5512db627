"""acl.himpi: the dicts of decoding with every field that pyACL's have, so that programs read one, change a field and give it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_VIDEO_CODECS = (96, 265)
_JPEG = 26
_ATTRIBUTES: dict[str, Any] = {
    "type": 0, "mode": 0, "pic_width": 0, "pic_height": 0, "stream_buf_size": 0, "frame_buf_size": 0, "frame_buf_cnt": 0,
    "video_attr": {"ref_frame_num": 0, "temporal_mvp_en": 0, "tmv_buf_size": 0},
}  # fmt: skip
_VIDEO_PARAMETERS = dict.fromkeys(
    ("composite_dec_en", "slice_input_en", "err_threshold", "dec_mode", "out_order", "compress_mode", "video_format", "quick_mark_mode"), 0
)
_PICTURE_PARAMETERS = {"pixel_format": 1, "alpha": 255}
_ERRORS = ("set_pic_size", "set_protocol_num", "set_ref_num", "set_pic_buf_size", "format", "pack")
NO_ERRORS = {f"{name}_err": 0 for name in _ERRORS} | dict.fromkeys(("stream_unsupport", "stream_size_over", "stream_not_release"), 0)
_ADDRESSES = ("misc_info", "jpeg_dcf", "isp_info", "low_delay", "motion_data", "frame_dng")
NO_SUPPLEMENT = {f"{name}_{kind}_addr": 0 for kind in ("phys", "virt") for name in _ADDRESSES} | {
    "bnr_rnt_phys_addr": 0, "bnr_mot_virt_addr": 0,
}  # fmt: skip


def attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """hi_vdec_chn_attr as given, what is missing in it zero."""
    return _completed(_ATTRIBUTES, given)


def parameters(kind: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """hi_vdec_chn_param of a channel of that type: as given, else as before anything was set."""
    own: dict[str, Any] = {"video_param": _VIDEO_PARAMETERS} if kind in _VIDEO_CODECS else {}
    if kind == _JPEG:
        own = {"pic_param": _PICTURE_PARAMETERS}
    return _completed({"type": kind, "display_frame_num": 0, **own}, given)


def _completed(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """before: {a: 1, b: {c: 2, d: 3}}, given: {b: {c: 5}} -> {a: 1, b: {c: 5, d: 3}}."""
    inner = {key: _completed(value, given.get(key) or {}) for key, value in before.items() if isinstance(value, dict)}
    return {**before, **given, **inner}
