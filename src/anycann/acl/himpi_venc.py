"""acl.himpi: pictures encoded to JPEG files and video by channels with numbers; programs fetch what is done."""

from __future__ import annotations

from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, code_of, dict_in, errors_of, number_in
from anycann.acl.himpi_venc_channel import CHANNELS, JPEG, VencChannel
from anycann.acl.media_memory import device_bytes
from anycann.acl.memory import give_back, take_device_memory
from anycann.acl.process import PROCESS
from anycann.media import jpeg
from anycann.media.formats import pixel_format
from anycann.media.picture import Picture


@status("acl.himpi.venc_create_chn", limits="CBR, VBR, AVBR, QVBR and CVBR all keep the mean bit rate; stats_time is not used")
def venc_create_chn(channel: int, attributes: dict[str, Any]) -> None:
    """A channel with a number of the program's. attributes["venc_attr"]["type"]: 26 JPEG, 96 H.264, 265 H.265.

    Of rc_attr gop, the bit rate or quantisers, and how many frames come in a second and how many are coded: src and dst_frame_rate.
    """
    with errors_of("VENC"):
        PROCESS.context()
        CHANNELS.check_free(channel)
        CHANNELS.add(channel, VencChannel(dict(attributes)))


@status("acl.himpi.venc_destroy_chn")
def venc_destroy_chn(channel: int) -> None:
    """End a channel after what was sent."""
    with errors_of("VENC"):
        CHANNELS.remove(channel).close()


@status("acl.himpi.venc_start_chn")
def venc_start_chn(channel: int, parameters: dict[str, Any]) -> None:
    """Take pictures from now on: {recv_pic_num}, -1 for as many as come."""
    with errors_of("VENC"):
        count = number_in(parameters, "recv_pic_num", "hi_venc_start_param")
        if count == 0 or count < -1:
            raise AclError(Code.INVALID_PARAM, f"recv_pic_num is {count}; accepted: -1 (no limit), or at least 1")
        found = CHANNELS.get(channel)
        found.receiving, found.left_to_receive = True, count


@status("acl.himpi.venc_stop_chn")
def venc_stop_chn(channel: int) -> None:
    """Take no more pictures; those that were sent are encoded."""
    with errors_of("VENC"):
        CHANNELS.get(channel).receiving = False


# ---- pictures
@status("acl.himpi.venc_send_frame")
def venc_send_frame(channel: int, frame: dict[str, Any], timeout_ms: int) -> None:
    """Encode a picture {v_frame: {width, height, pixel_format, width_stride, height_stride, virt_addr, pts, ...}, ...}.

    Strides and addresses are lists by plane; a height stride of 0 is the height, where the second address says nothing else.
    """
    with errors_of("VENC"):
        _send(channel, dict_in(frame, "v_frame", "hi_video_frame_info"))


_KEY_FRAME = 2


@status("acl.himpi.venc_send_frame_ex", limits="maps of quantisation and of regions are not used")
def venc_send_frame_ex(channel: int, frame: dict[str, Any], timeout_ms: int) -> None:
    """As venc_send_frame, of {user_frame, user_rc_info: {frame_type: 1, 2 a key frame, ...}, user_roi_map}."""
    with errors_of("VENC"):
        wanted = frame.get("user_rc_info", {})
        if isinstance(wanted, dict) and wanted.get("frame_type") == _KEY_FRAME:
            CHANNELS.get(channel).key_frame_asked = True
        _send(channel, dict_in(dict_in(frame, "user_frame", "hi_user_frame_info"), "v_frame", "user_frame"))


@status("acl.himpi.venc_send_jpege_frame")
def venc_send_jpege_frame(channel: int, frame: dict[str, Any], output: dict[str, Any], timeout_ms: int) -> None:
    """Encode to memory of the program's {addr, len}. The channel was created with buf_size 0."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        if found.kind != JPEG or found.own_buffer:
            raise AclError(code_of("VENC", "NOT_SUPPORT"), "the channel is not one of JPEG with buf_size 0; call acl.himpi.venc_send_frame")
        place = number_in(output, "addr", "the output"), number_in(output, "len", "the output")
        device_bytes(*place, "the output")
        _send(channel, dict_in(frame, "v_frame", "hi_video_frame_info"), place)


def _send(channel: int, given: Dict, place: tuple[int, int] = (0, 0)) -> None:
    found = CHANNELS.get(channel)
    if not found.receiving:
        raise AclError(code_of("VENC", "NOT_PERM"), "the channel takes no pictures; call acl.himpi.venc_start_chn first")
    most = int(found.settings.get("chn_param", {}).get("max_stream_cnt", 0))
    if 0 < most <= len(found.done) + found.waiting:
        raise AclError(code_of("VENC", "BUF_FULL"), f"{most} coded pictures wait, as many as max_stream_cnt of the channel allows")
    found.send(_picture(found, given), int(given.get("pts", 0)), place)


def _picture(channel: VencChannel, given: Dict) -> Picture:
    """A copy of the picture, which the program may overwrite."""
    form = pixel_format(number_in(given, "pixel_format", "v_frame"))
    if form.number not in (1, 2) and (channel.kind != JPEG or form.layout != "packed 422"):
        raise AclError(code_of("VENC", "NOT_SUPPORT"), f"pictures of {form.name}; accepted: YUV420SP (1, 2), for JPEG YUV422 packed too")
    width, height = (number_in(given, axis, "v_frame") for axis in ("width", "height"))
    fits = (width, height) == (channel.width, channel.height)
    if not fits and (channel.kind != JPEG or width > channel.width or height > channel.height):
        raise AclError(Code.INVALID_PARAM, f"a picture of {width} x {height}; the channel takes {channel.width} x {channel.height}")
    stride, address = _first(given, "width_stride"), _first(given, "virt_addr")
    second = given["virt_addr"][1] if len(given["virt_addr"]) > 1 and form.layout == "semi-planar" else 0
    rows = (second - address) // stride if second > address and stride else _first(given, "height_stride") or -(-height // 2) * 2
    if stride < form.row_bytes(width) or rows < height:
        least = f"{form.row_bytes(width)} x {height}"
        raise AclError(Code.INVALID_PARAM, f"strides {stride} x {rows} for {width} x {height} of {form.name}; accepted: at least {least}")
    data = device_bytes(address, form.nbytes(stride, rows), "the picture").copy()
    return Picture(form, width, height, stride, rows, data)


def _first(given: Dict, key: str) -> int:
    found = given.get(key)
    if not isinstance(found, list) or not found or not isinstance(found[0], int):
        raise AclError(Code.INVALID_PARAM, f"v_frame[{key!r}] is {found!r:.60}; accepted: a list of ints")
    return found[0]


# ---- coded pictures
_NO_STREAM_INFO = dict.fromkeys(
    ("ref_type", "pic_bytes", "pic_cnt", "start_qp", "mean_qp", "is_p_skip", "residual_bits", "head_bits", "madi_val", "madp_val",
     "sse_sum", "sse_lcu_cnt", "psnr_val"), 0,
)  # fmt: skip


@value_and_status(
    "acl.himpi.venc_query_status", failed=({},), returns="(dict, ret)", limits="of what was coded its bytes and its mean quantiser are told"
)
def venc_query_status(channel: int) -> dict[str, object]:
    """What is waiting, and `cur_packs`, how many parts the next coded picture has."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        done, waiting = found.done, found.waiting
        first = len(done[0].data) if done else 0
        return {
            "left_pics": waiting, "left_stream_bytes": sum(len(each.data) for each in done), "left_stream_frames": len(done),
            "cur_packs": int(bool(done)), "left_recv_pics": max(found.left_to_receive, 0), "left_enc_pics": waiting,
            "is_jpeg_snap_end": int(not found.receiving and not waiting), "release_pic_pts": done[0].pts if done else 0,
            "stream_info": {**_NO_STREAM_INFO, "pic_bytes": first, "pic_cnt": int(bool(done)), "mean_qp": done[0].quantiser if done else 0},
        }  # fmt: skip


@value_and_status("acl.himpi.venc_get_stream", failed=({},), returns="(dict, ret)")
def venc_get_stream(channel: int, stream: dict[str, Any], timeout_ms: int) -> dict[str, object]:
    """The next coded picture; wait for at most `timeout_ms` (-1: for ever). `stream`: {pack_cnt}, at least 1.

    pack[0] has it: `len` bytes of device memory at `addr`, there until acl.himpi.venc_release_stream.
    """
    with errors_of("VENC"):
        if number_in(stream, "pack_cnt", "hi_venc_stream") < 1:
            raise AclError(Code.INVALID_PARAM, "pack_cnt is 0: nothing was encoded when acl.himpi.venc_query_status was asked; ask again")
        found = CHANNELS.get(channel)
        coded = found.fetch(timeout_ms)
        address = coded.place or take_device_memory(len(coded.data), 0, "dvpp", filled=True)
        if not coded.place:
            device_bytes(address, len(coded.data), "the coded picture")[:] = memoryview(coded.data)
        found.fetched[address] = 0 if coded.place else address
        pack = {
            "phys_addr": 0, "input_addr": 0, "addr": address, "len": len(coded.data), "pts": coded.pts, "is_frame_end": 1, "offset": 0,
            "data_num": 0,
        }  # fmt: skip
        return {"pack_cnt": 1, "seq": coded.number, "pack": [pack]}


@status("acl.himpi.venc_release_stream")
def venc_release_stream(channel: int, stream: dict[str, Any]) -> None:
    """Give back what venc_get_stream gave."""
    with errors_of("VENC"):
        found = CHANNELS.get(channel)
        for pack in stream.get("pack", ()):
            address = number_in(pack, "addr", "the stream's pack")
            if address not in found.fetched:
                raise AclError(Code.INVALID_PARAM, f"{address:#x} is no coded picture of this channel, or was released before")
            own = found.fetched.pop(address)
            if own:
                give_back(own, ("dvpp",), "acl.himpi.venc_get_stream")


@value("acl.himpi.venc_get_fd", failed=-1, returns="fd")
def venc_get_fd(channel: int) -> int:
    """A descriptor that is readable while coded pictures wait."""
    with errors_of("VENC"):
        return CHANNELS.get(channel).ready.descriptor()


@status("acl.himpi.venc_close_fd")
def venc_close_fd(channel: int) -> None:
    """Close the channel's descriptor."""
    with errors_of("VENC"):
        CHANNELS.get(channel).ready.close()


@status("acl.himpi.venc_request_idr")
def venc_request_idr(channel: int, instant: int) -> None:
    """The next picture is a key frame."""
    with errors_of("VENC"):
        CHANNELS.get(channel).key_frame_asked = True


@value_and_status("acl.himpi.venc_get_jpege_predicted_size", returns="(bytes, ret)")
def venc_get_jpege_predicted_size(frame: dict[str, Any], parameters: dict[str, Any]) -> int:
    """Bytes that the JPEG file of a picture never exceeds."""
    with errors_of("VENC"):
        given = dict_in(frame, "v_frame", "hi_video_frame_info")
        return jpeg.most_bytes(*(number_in(given, axis, "v_frame") for axis in ("width", "height")))
