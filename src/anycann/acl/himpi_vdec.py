"""acl.himpi: JPEG pictures and video decoded by channels with numbers; programs fetch what is done."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, code_of, dict_in, errors_of, number_in
from anycann.acl.himpi_vdec_channel import ALIGNMENT, CHANNELS, H264, H265, JPEG, Sent, VdecChannel
from anycann.acl.himpi_vdec_fields import NO_ERRORS, NO_SUPPLEMENT
from anycann.acl.himpi_vdec_fields import attributes as all_attributes
from anycann.acl.himpi_vdec_fields import parameters as all_parameters
from anycann.acl.media_jpeg import decodable, read_file, strides_for
from anycann.acl.media_memory import any_bytes, device_bytes
from anycann.acl.media_pictures import PicDesc
from anycann.acl.process import PROCESS
from anycann.media import jpeg
from anycann.media.formats import pixel_format

_PLANES = 3
_ORDERS = (0, 1)
_LIMITS = {  # by the type of a channel: the dict that has them, and the most that each may be
    H264: ("h264_param", {"max_slice_num": 136, "max_sps_num": 32, "max_pps_num": 256}),
    H265: ("h265_param", {"max_slice_segment_num": 200, "max_vps_num": 16, "max_sps_num": 16, "max_pps_num": 64}),
}


@status("acl.himpi.vdec_create_chn")
def vdec_create_chn(channel: int, attributes: dict[str, Any]) -> None:
    """A channel with a number of the program's. attributes["type"]: 26 JPEG, 96 H.264, 265 H.265."""
    with errors_of("VDEC"):
        PROCESS.context()
        CHANNELS.check_free(channel)
        CHANNELS.add(channel, VdecChannel(dict(attributes)))


@status("acl.himpi.vdec_destroy_chn")
def vdec_destroy_chn(channel: int) -> None:
    """End a channel after what was sent."""
    with errors_of("VDEC"):
        CHANNELS.remove(channel).close()


@status("acl.himpi.vdec_start_recv_stream")
def vdec_start_recv_stream(channel: int) -> None:
    """Take frames from now on."""
    with errors_of("VDEC"):
        CHANNELS.get(channel).receiving = True


@status("acl.himpi.vdec_stop_recv_stream")
def vdec_stop_recv_stream(channel: int) -> None:
    """Take no more frames."""
    with errors_of("VDEC"):
        CHANNELS.get(channel).receiving = False


@status("acl.himpi.vdec_send_stream")
def vdec_send_stream(channel: int, stream: dict[str, Any], picture: dict[str, Any], timeout_ms: int) -> None:
    """Decode one frame {addr, len, pts, end_of_stream, need_display, ...} into {vir_addr, buffer_size, pixel_format, width, ...}."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        if not found.receiving:
            raise AclError(code_of("VDEC", "NOT_PERM"), "the channel takes no frames; call acl.himpi.vdec_start_recv_stream first")
        length = number_in(stream, "len", "the stream")
        ends = bool(stream.get("end_of_stream", 0))
        if not length and not ends:
            raise AclError(Code.INVALID_PARAM, "the frame has 0 bytes and does not end the stream; accepted: at least 1, or end_of_stream")
        if length:
            data = device_bytes(number_in(stream, "addr", "the stream"), length, "the frame").tobytes()
            found.send(Sent(dict(stream), _target(picture) if stream.get("need_display", 1) else None), data)
        if ends:
            found.send(Sent({**stream, "len": 0, "addr": 0}, None), b"")


def _target(given: Dict) -> PicDesc:
    names = ("vir_addr", "buffer_size", "pixel_format", "width", "height", "width_stride", "height_stride")
    target = PicDesc(*(number_in(given, name, "the picture") for name in names))
    device_bytes(target.data, target.size, "the picture")
    return target


_NO_FRAME: dict[str, object] = {"v_frame": {}, "pool_id": 0, "mod_id": 0}


@value_and_status("acl.himpi.vdec_get_frame", failed=(_NO_FRAME, {}, {}), returns="(frame, supplement, stream, ret)")
def vdec_get_frame(channel: int, timeout_ms: int) -> tuple[dict[str, object], dict[str, object], dict[str, Any]]:
    """The next picture that is done; wait for at most `timeout_ms` (-1: for ever). v_frame["frame_flag"] is 0 where decoding went well."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        sent = found.fetch(timeout_ms)
        supplement = {"type": found.kind, "video_supplement_info": {"frame_type": 0, "err_rate": 0, "poc": 0}}
        return {"v_frame": _frame(sent), "pool_id": 0, "mod_id": 0}, supplement, sent.stream


def _frame(sent: Sent) -> dict[str, object]:
    target = sent.target or PicDesc()
    plane = target.width_stride * target.height_stride
    return {
        "width": target.width, "height": target.height, "field": 0, "pixel_format": target.format, "video_format": 0, "compress_mode": 0,
        "dynamic_range": 0, "color_gamut": 0, "header_stride": [0] * _PLANES, "width_stride": [target.width_stride] * _PLANES,
        "height_stride": [target.height_stride] * _PLANES, "header_phys_addr": [0] * _PLANES, "phys_addr": [0] * _PLANES,
        "header_virt_addr": [0] * _PLANES, "virt_addr": [target.data, target.data + plane if target.data else 0, 0], "time_ref": 0,
        "pts": sent.stream.get("pts", 0), "user_data": [0] * 8, "frame_flag": sent.flag, "supplement": dict(NO_SUPPLEMENT),
    }  # fmt: skip


@status("acl.himpi.vdec_release_frame")
def vdec_release_frame(channel: int, frame: dict[str, Any]) -> None:
    """Nothing has to be given back: pictures lie in memory of the program's."""
    with errors_of("VDEC"):
        CHANNELS.get(channel)


@value_and_status("acl.himpi.vdec_query_status", failed=({},), returns="(dict, ret)")
def vdec_query_status(channel: int) -> dict[str, object]:
    """What the channel has taken and not given back."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        return {
            "type": found.kind, "left_stream_bytes": 0, "left_stream_frames": 0, "left_decoded_frames": found.left,
            "is_started": int(found.receiving), "recv_stream_frames": found.received, "dec_stream_frames": found.received - found.left,
            "dec_err": {**NO_ERRORS, "set_protocol_num_err": found.beyond_limits}, "latest_frame_pts": 0,
            "width": found.attributes.get("pic_width", 0), "height": found.attributes.get("pic_height", 0),
        }  # fmt: skip


@status("acl.himpi.vdec_reset_chn")
def vdec_reset_chn(channel: int) -> None:
    """The channel becomes as new. It may not be receiving."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        if found.receiving:
            raise AclError(code_of("VDEC", "NOT_PERM"), "the channel is receiving; call acl.himpi.vdec_stop_recv_stream first")
        found.close()
        CHANNELS.remove(channel)
        CHANNELS.add(channel, VdecChannel(found.attributes, found.parameters))


@value_and_status("acl.himpi.vdec_get_chn_attr", failed=({},), returns="(dict, ret)")
def vdec_get_chn_attr(channel: int) -> dict[str, object]:
    """What the channel was created with, every field."""
    with errors_of("VDEC"):
        return all_attributes(CHANNELS.get(channel).attributes)


@status("acl.himpi.vdec_set_chn_attr")
def vdec_set_chn_attr(channel: int, attributes: dict[str, Any]) -> None:
    """Other attributes of the same type. Memory for streams and pictures is taken as it is needed, up to the device's."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        if attributes.get("type") != found.kind:
            raise AclError(Code.INVALID_PARAM, f"the type of a channel stays {found.kind}; got {attributes.get('type')}")
        found.attributes = dict(attributes)


@value_and_status("acl.himpi.vdec_get_chn_param", failed=({},), returns="(dict, ret)")
def vdec_get_chn_param(channel: int) -> dict[str, object]:
    """What was set, every field: {type, display_frame_num, video_param: {...}}, for JPEG pic_param: {pixel_format, alpha}."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        return all_parameters(found.kind, found.parameters)


@status("acl.himpi.vdec_set_chn_param")
def vdec_set_chn_param(channel: int, parameters: dict[str, Any]) -> None:
    """How frames are decoded. video_param["out_order"]: 0 pictures come in the order they are shown, 1 in that they are coded.

    1 is for streams without B frames, where both are the same; others come as they are shown.
    """
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        order = parameters.get("video_param", {}).get("out_order", 0)
        if order not in _ORDERS:
            raise AclError(Code.INVALID_PARAM, f"out_order {order}; accepted: 0 (as they are shown), 1 (as they are coded)")
        found.parameters = deepcopy(dict(parameters))


@status("acl.himpi.vdec_set_protocol_param")
def vdec_set_protocol_param(channel: int, parameters: dict[str, Any]) -> None:
    """How much a stream may have: {type: 96, h264_param: {max_slice_num, ...}} or {type: 265, h265_param: {...}}.

    A frame with more is not decoded: its frame_flag is 1, and acl.himpi.vdec_query_status counts it as set_protocol_num_err.
    """
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        name, limits = _limits_of(found)
        if number_in(parameters, "type", "hi_vdec_protocol_param") != found.kind:
            raise AclError(Code.INVALID_PARAM, f"the type of the channel is {found.kind}; got {parameters['type']}")
        given = dict_in(parameters, name, "hi_vdec_protocol_param")
        for key, most in limits.items():
            if not 1 <= number_in(given, key, name) <= most:
                raise AclError(Code.INVALID_PARAM, f"{key} is {given[key]}; accepted: 1 to {most}")
        found.limits = {key: given[key] for key in limits}


@value_and_status("acl.himpi.vdec_get_protocol_param", failed=({},), returns="(dict, ret)")
def vdec_get_protocol_param(channel: int) -> dict[str, object]:
    """What was set; as much as there may be where nothing was."""
    with errors_of("VDEC"):
        found = CHANNELS.get(channel)
        name, limits = _limits_of(found)
        return {"type": found.kind, name: {**limits, **found.limits}}


def _limits_of(channel: VdecChannel) -> tuple[str, dict[str, int]]:
    if channel.kind not in _LIMITS:
        raise AclError(code_of("VDEC", "NOT_PERM"), "JPEG has no limits of a protocol; accepted: channels of type 96 (H.264), 265 (H.265)")
    return _LIMITS[channel.kind]


@status("acl.himpi.vdec_set_display_mode")
def vdec_set_display_mode(channel: int, mode: int) -> None:
    """0 preview, 1 playback: alike here."""
    with errors_of("VDEC"):
        CHANNELS.get(channel).display_mode = mode


@value_and_status("acl.himpi.vdec_get_display_mode", returns="(mode, ret)")
def vdec_get_display_mode(channel: int) -> int:
    """What was set."""
    with errors_of("VDEC"):
        return CHANNELS.get(channel).display_mode


@status("acl.himpi.vdec_set_jpegd_precision_mode")
def vdec_set_jpegd_precision_mode(channel: int, mode: int) -> None:
    """0 and 2: odd sizes of JPEG pictures are rounded down, 1: up; the last pixel is there twice."""
    with errors_of("VDEC"):
        if mode not in (0, 1, 2):
            raise AclError(Code.INVALID_PARAM, f"precision mode {mode}; accepted: 0 and 2 (down), 1 (up)")
        CHANNELS.get(channel).odd_sizes_up = mode == 1


@value("acl.himpi.vdec_get_fd", failed=-1, returns="fd")
def vdec_get_fd(channel: int) -> int:
    """A descriptor that is readable while decoded pictures wait."""
    with errors_of("VDEC"):
        return CHANNELS.get(channel).ready.descriptor()


@status("acl.himpi.vdec_close_fd")
def vdec_close_fd(channel: int) -> None:
    """Close the channel's descriptor."""
    with errors_of("VDEC"):
        CHANNELS.get(channel).ready.close()


@value("acl.himpi.vdec_get_pic_buf_size", returns="bytes")
def vdec_get_pic_buf_size(kind: int, attributes: dict[str, Any]) -> int:
    """Bytes that a decoded picture of {width, height, pixel_format} needs."""
    form = pixel_format(number_in(attributes, "pixel_format", "hi_pic_buf_attr"))
    width, height = (number_in(attributes, key, "hi_pic_buf_attr") for key in ("width", "height"))
    stride, rows = strides_for(width, height) if kind == JPEG else (-(-width // ALIGNMENT) * ALIGNMENT, -(-height // 2) * 2)
    return form.nbytes(form.row_bytes(stride), rows)


@value("acl.himpi.vdec_get_tmv_buf_size", returns="bytes")
def vdec_get_tmv_buf_size(kind: int, width: int, height: int) -> int:
    """Motion vectors need no memory of the program's."""
    return 0


@value_and_status("acl.himpi.dvpp_get_image_info", failed=({},), returns="(dict, ret)")
def dvpp_get_image_info(kind: int, stream: dict[str, Any]) -> dict[str, object]:
    """Size, strides and bytes of the picture of a JPEG file {addr, len, ...} in any memory, and the format it has."""
    with errors_of("VDEC"):
        return _information(stream, 10000)


@value_and_status("acl.himpi.vdec_get_jpegd_output_info", failed=({},), returns="(dict, ret)")
def vdec_get_jpegd_output_info(stream: dict[str, Any], pixel_format: int) -> dict[str, object]:
    """As dvpp_get_image_info, for the format that it is to be decoded to."""
    with errors_of("VDEC"):
        return _information(stream, pixel_format)


def _information(stream: Dict, number: int) -> dict[str, object]:
    data = any_bytes(number_in(stream, "addr", "the stream"), number_in(stream, "len", "the stream"), "the JPEG data")
    header = decodable(read_file(data).header)
    form = jpeg.output_format(header, number)
    stride, rows = strides_for(header.width, header.height)
    return {
        "width": header.width, "height": header.height, "width_stride": stride, "height_stride": rows,
        "img_buf_size": form.nbytes(stride, rows), "pixel_format": form.number, "reserved": [0] * 16,
    }  # fmt: skip
