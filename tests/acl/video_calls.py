"""What programs that decode and encode video with acl.media have at hand."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import numpy as np

from anycann.media.formats import FORMATS
from anycann.media.picture import Picture
from anycann.media.video_encoder import EncoderSettings, VideoEncoder

INVALID, NO_PICTURE, TIMEOUT = 100000, 0x20000, 507012
WIDTH, HEIGHT = 128, 96


def frames(count: int) -> list[bytes]:
    encoder = VideoEncoder(EncoderSettings("h264", "main", WIDTH, HEIGHT, 250))
    return [encoder.encode(flat(20 + 5 * number))[0] for number in range(count)]


def flat(level: int) -> Picture:
    data = np.full(WIDTH * HEIGHT * 3 // 2, level, np.uint8)
    data[WIDTH * HEIGHT :] = 128
    return Picture(FORMATS[1], WIDTH, HEIGHT, WIDTH, HEIGHT, data)


class Reporter:
    """A thread that runs callbacks until it is told to stop."""

    def __init__(self, acl: ModuleType):
        self.acl, self.going = acl, True
        context, _ = acl.rt.get_context()

        def work(arguments: list[int]) -> None:
            acl.rt.set_context(arguments[0])
            while self.going:
                acl.rt.process_report(50)

        self.id, ret = acl.util.start_thread(work, [context])
        assert ret == 0

    def stop(self) -> None:
        if self.going:
            self.going = False
            assert self.acl.util.stop_thread(self.id) == 0


class Decoder:
    """A VDEC channel, and what its callback was told."""

    def __init__(self, acl: ModuleType, reporter: Reporter, form: int = 1, entype: int = 2, number: int = 3, bit_depth: int = 0):
        self.acl, self.media, self.form = acl, acl.media, form
        self.seen: list[tuple[object, int, int]] = []  # user data, return code, first byte
        self.threads: set[int] = set()
        self.channel = acl.media.vdec_create_channel_desc()
        for name, value in (
            ("channel_id", number), ("thread_id", reporter.id), ("entype", entype), ("out_pic_format", form), ("bit_depth", bit_depth),
        ):  # fmt: skip
            assert getattr(acl.media, f"vdec_set_channel_desc_{name}")(self.channel, value) == 0
            assert getattr(acl.media, f"vdec_get_channel_desc_{name}")(self.channel) == value
        assert acl.media.vdec_set_channel_desc_callback(self.channel, self.callback) == 0
        self.config = acl.media.vdec_create_frame_config()
        self.buffer, _ = acl.media.dvpp_malloc(1 << 16)
        assert acl.media.vdec_create_channel(self.channel) == 0

    def callback(self, stream_desc: int, pic: int, user_data: object) -> None:
        self.threads.add(threading.get_ident())
        code = self.media.dvpp_get_pic_desc_ret_code(pic) if pic else -1
        first = self.acl.util.ptr_to_bytes(self.media.dvpp_get_pic_desc_data(pic), 1)[0] if pic else -1
        self.seen.append((user_data, code, first))
        self.media.dvpp_destroy_stream_desc(stream_desc)

    def stream_desc(self, data: bytes, eos: int = 0) -> int:
        desc = self.media.dvpp_create_stream_desc()
        if data:
            content = np.frombuffer(data, np.uint8)
            self.acl.rt.memcpy(self.buffer, 1 << 16, content.ctypes.data, len(data), 1)
            self.media.dvpp_set_stream_desc_data(desc, self.buffer)
            self.media.dvpp_set_stream_desc_size(desc, len(data))
        self.media.dvpp_set_stream_desc_eos(desc, eos)
        return int(desc)

    def picture(self, size: int = WIDTH * HEIGHT * 3) -> int:
        pic = self.media.dvpp_create_pic_desc()
        self.media.dvpp_set_pic_desc_data(pic, self.media.dvpp_malloc(size)[0])
        self.media.dvpp_set_pic_desc_size(pic, size)
        self.media.dvpp_set_pic_desc_format(pic, self.form)
        return int(pic)

    def send(self, data: bytes, user_data: object, pic: int | None = None, eos: int = 0) -> int:
        pic = self.picture() if pic is None else pic
        return int(self.media.vdec_send_frame(self.channel, self.stream_desc(data, eos), pic, self.config, user_data))

    def close(self) -> int:
        return int(self.media.vdec_destroy_channel(self.channel))


def encoder_channel(acl: ModuleType, reporter: Reporter, callback: Any, entype: int = 2) -> int:
    media, channel = acl.media, acl.media.venc_create_channel_desc()
    for name, number in (
        ("thread_id", reporter.id), ("entype", entype), ("pic_format", 1), ("pic_width", WIDTH), ("pic_height", HEIGHT),
        ("key_frame_interval", 16), ("src_rate", 30), ("max_bit_rate", 300), ("rc_mode", 0),
    ):  # fmt: skip
        assert getattr(media, f"venc_set_channel_desc_{name}")(channel, number) == 0
        assert getattr(media, f"venc_get_channel_desc_{name}")(channel) == number
    assert media.venc_set_channel_desc_callback(channel, callback) == 0
    return int(channel)


def input_picture(acl: ModuleType, level: int) -> int:
    pic, size = acl.media.dvpp_create_pic_desc(), WIDTH * HEIGHT * 3 // 2
    ptr, _ = acl.media.dvpp_malloc(size)
    data = flat(level).data
    acl.rt.memcpy(ptr, size, data.ctypes.data, size, 1)
    acl.media.dvpp_set_pic_desc_data(pic, ptr)
    acl.media.dvpp_set_pic_desc_size(pic, size)
    return int(pic)
