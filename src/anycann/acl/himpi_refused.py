"""acl.himpi: functions that are known and not done, each with the code that a chip without it answers."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.acl.entries import refused

_EPOLL = "channels are asked with a timeout; there is no descriptor to wait for"
_MATRIX = "the colour matrix of a channel is BT.601 wide; acl.media.dvpp_set_channel_desc_param chooses another"
_DRAWING = "use acl.media, or draw on the host"
_ENCODING = "pictures and video are encoded by acl.media: dvpp_jpeg_encode_async, venc_send_frame"
_SYSTEM = {
    "sys_create_epoll": _EPOLL, "sys_ctl_epoll": _EPOLL, "sys_wait_epoll": _EPOLL, "sys_close_epoll": _EPOLL, "vdec_get_fd": _EPOLL,
    "vdec_close_fd": _EPOLL, "sys_set_chn_csc_matrix": _MATRIX, "sys_get_chn_csc_matrix": _MATRIX,
    "vdec_set_protocol_param": "limits of a protocol are not used", "vdec_get_protocol_param": "limits of a protocol are not used",
}  # fmt: skip
_VPC = (
    "pyrdown", "calc_hist", "calc_hist_v2", "equalize_hist", "crop_resize_make_border", "batch_crop_resize_paste",
    "batch_crop_resize_make_border", "crop_resize_resize_paste", "dilate", "draw_cover", "draw_line", "draw_mosaic", "draw_osd", "blur",
    "gaussian_blur", "erode", "filter2d", "flip", "get_affine_lut", "get_lut_mem_size", "get_affine_transform", "get_perspective_lut",
    "get_remap_lut", "get_rotation_matrix", "lut_remap", "set_chn_workspace", "median_blur", "rotate", "warp_affine", "set_chn_opt_attr",
)  # fmt: skip
_VENC = (
    "create_chn", "destroy_chn", "start_chn", "stop_chn", "query_status", "get_stream", "release_stream", "send_frame", "send_frame_ex",
    "set_mod_param", "get_mod_param", "request_idr", "get_fd", "close_fd", "set_jpeg_param", "get_jpeg_param", "set_chn_param",
    "get_chn_param", "set_chn_attr", "get_chn_attr", "set_scene_mode", "set_rc_param", "get_rc_param", "set_jpeg_huffman_param",
    "get_jpeg_huffman_param", "compact_jpeg_tables", "send_jpege_frame", "get_jpege_predicted_size", "get_scene_mode", "set_cu_pred",
    "get_cu_pred", "set_h264_vui", "get_h264_vui", "set_h265_vui", "get_h265_vui", "set_intra_refresh", "get_intra_refresh",
    "set_ref_param", "get_ref_param", "set_roi_attr", "get_roi_attr", "set_slice_split", "get_slice_split", "get_qpmap_stride",
    "get_qpmap_size", "set_streamcopy_param", "get_streamcopy_param",
)  # fmt: skip
_GIVES_ONE = ("get_", "query_", "calc_", "equalize_")  # a value before the code, as the functions that are there


def _declare(name: str, why: str, code: Code, task: bool) -> None:
    gives = task or name.split("_", 1)[1].startswith(_GIVES_ONE)
    refused(f"acl.himpi.{name}", ("arguments",), why, code, failed=(0,) if gives else ())


for _name, _why in _SYSTEM.items():
    _declare(_name, _why, Code.HI_VDEC_NOT_SUPPORT, task=_name in ("sys_create_epoll",))
for _name in _VPC:
    _declare(f"vpc_{_name}", _DRAWING, Code.HI_VPC_NOT_SUPPORT, task=not _name.startswith("set_"))
for _name in _VENC:
    _declare(f"venc_{_name}", _ENCODING, Code.HI_VENC_NOT_SUPPORT, task=False)
