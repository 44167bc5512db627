"""VDEC and VENC as a program calls them: callbacks in the thread that it named, and no hang whatever it does."""

from __future__ import annotations

from collections.abc import Iterator
import threading
import time
from types import ModuleType
from typing import Any

import numpy as np
import pytest

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


@pytest.fixture
def reporter(acl: ModuleType) -> Iterator[Reporter]:
    made = Reporter(acl)
    yield made
    made.stop()


class Decoder:
    """A VDEC channel, and what its callback was told."""

    def __init__(self, acl: ModuleType, reporter: Reporter, form: int = 1, entype: int = 2, number: int = 3):
        self.acl, self.media, self.form = acl, acl.media, form
        self.seen: list[tuple[object, int, int]] = []  # user data, return code, first byte
        self.threads: set[int] = set()
        self.channel = acl.media.vdec_create_channel_desc()
        for name, value in (("channel_id", number), ("thread_id", reporter.id), ("entype", entype), ("out_pic_format", form)):
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


def test_every_frame_is_reported_once_in_the_programs_thread(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    pictures = [decoder.picture() for _ in range(10)]
    for number, data in enumerate(frames(10)):  # all from one buffer, which is overwritten at once
        assert decoder.send(data, [number], pictures[number]) == 0
    assert decoder.send(b"", None, 0, eos=1) == 0
    assert [user for user, _, _ in decoder.seen] == [[number] for number in range(10)]
    assert all(code == 0 and abs(first - 20 - 5 * number) <= 2 for number, (_, code, first) in enumerate(decoder.seen))
    assert decoder.threads == {reporter.id}
    geometry = [getattr(acl.media, f"dvpp_get_pic_desc_{name}")(pictures[0]) for name in ("width", "height", "width_stride")]
    assert geometry == [WIDTH, HEIGHT, WIDTH]
    assert decoder.send(frames(1)[0], "again") == 0  # after the end another stream may begin
    assert decoder.close() == 0
    assert decoder.seen[-1][:2] == ("again", 0)
    assert acl.media.vdec_destroy_channel_desc(decoder.channel) == 0
    assert acl.media.vdec_destroy_frame_config(decoder.config) == 0


def test_frames_may_be_rgb(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter, form=12)
    assert decoder.send(frames(1)[0], 0) == 0
    assert decoder.close() == 0
    assert abs(decoder.seen[0][2] - 20) <= 2


def test_a_skipped_frame_has_no_picture(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    data = frames(3)
    desc = decoder.stream_desc(data[0])
    assert acl.media.vdec_send_skipped_frame(decoder.channel, desc, decoder.config, "skipped") == 0
    assert decoder.send(data[1], 1) == 0
    assert decoder.close() == 0
    assert [entry[:2] for entry in decoder.seen] == [("skipped", -1), (1, 0)]


def test_damaged_frames_are_reported_with_a_code(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    data = frames(2)
    assert decoder.send(b"\0\0\0\1garbage", "bad") == 0
    assert decoder.send(data[0], 0) == 0
    assert decoder.send(data[1], 1, decoder.picture(100)) == 0
    assert decoder.close() == 0
    assert [entry[:2] for entry in decoder.seen] == [("bad", INVALID), (0, 0), (1, INVALID)]


def test_a_frame_without_a_picture_is_reported_too(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    data = frames(1)[0]
    parameters = data[: data.index(b"\0\0\1\x65")].rstrip(b"\0") + b"\0"
    assert decoder.send(parameters, "parameters only") == 0
    assert decoder.close() == 0
    assert decoder.seen[0][:2] in (("parameters only", NO_PICTURE), ("parameters only", INVALID))


def test_bad_calls_are_named(acl: ModuleType, reporter: Reporter) -> None:
    media = acl.media
    channel = media.vdec_create_channel_desc()
    assert media.vdec_create_channel(channel) == INVALID
    assert "has no callback" in acl.get_recent_err_msg()
    media.vdec_set_channel_desc_callback(channel, print)
    assert media.vdec_create_channel(channel) == INVALID
    assert "thread 0, which is to take the reports, is not running" in acl.get_recent_err_msg()
    assert media.vdec_send_frame(channel, media.dvpp_create_stream_desc(), 0, 0, None) == INVALID
    assert "vdec_create_channel first" in acl.get_recent_err_msg()
    assert media.vdec_destroy_channel(channel) == INVALID
    assert media.vdec_set_channel_desc_entype(channel, 9) == INVALID
    assert media.vdec_set_channel_desc_out_pic_format(channel, 5) == INVALID
    with pytest.raises(TypeError, match="args parse failed"):
        media.vdec_set_channel_desc_callback(channel, 5)
    decoder = Decoder(acl, reporter)
    assert media.vdec_create_channel(decoder.channel) == INVALID
    assert decoder.send(b"", None) == INVALID
    assert "0 bytes and does not end the stream" in acl.get_recent_err_msg()
    half = decoder.picture()
    media.dvpp_set_pic_desc_width(half, WIDTH)
    assert decoder.send(frames(1)[0], None, half) == INVALID
    assert "accepted: all set, or none" in acl.get_recent_err_msg()
    assert decoder.close() == 0
    assert decoder.seen == []


def test_two_channels_need_two_numbers(acl: ModuleType, reporter: Reporter) -> None:
    first = Decoder(acl, reporter, number=5)
    second = acl.media.vdec_create_channel_desc()
    acl.media.vdec_set_channel_desc_channel_id(second, 5)
    acl.media.vdec_set_channel_desc_thread_id(second, reporter.id)
    acl.media.vdec_set_channel_desc_callback(second, print)
    assert acl.media.vdec_create_channel(second) == INVALID
    acl.media.vdec_set_channel_desc_channel_id(second, 6)
    assert acl.media.vdec_create_channel(second) == 0
    assert [first.close(), acl.media.vdec_destroy_channel(second)] == [0, 0]


def test_destroying_does_not_hang_when_the_thread_is_gone(acl: ModuleType) -> None:
    reporter = Reporter(acl)
    decoder = Decoder(acl, reporter)
    reporter.stop()
    assert decoder.send(frames(1)[0], 0) == 0
    begin = time.monotonic()
    assert decoder.close() == TIMEOUT
    assert "takes no reports" in acl.get_recent_err_msg() or "it ended" in acl.get_recent_err_msg()
    assert time.monotonic() - begin < 5


def test_destroying_does_not_hang_when_a_callback_is_stuck(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.acl.media_reports.PATIENCE_S", 0.3)
    reporter, release = Reporter(acl), threading.Event()
    decoder = Decoder(acl, reporter)
    acl.media.vdec_destroy_channel(decoder.channel)
    acl.media.vdec_set_channel_desc_callback(decoder.channel, lambda *rest: release.wait(20))
    assert acl.media.vdec_create_channel(decoder.channel) == 0
    for number, data in enumerate(frames(2)):
        assert decoder.send(data, number) == 0
    assert decoder.close() == TIMEOUT
    release.set()
    reporter.stop()


def test_a_program_without_a_second_thread_may_report_to_itself(acl: ModuleType) -> None:
    seen: list[Any] = []
    channel = acl.media.vdec_create_channel_desc()
    acl.media.vdec_set_channel_desc_thread_id(channel, threading.get_ident())
    acl.media.vdec_set_channel_desc_entype(channel, 2)
    acl.media.vdec_set_channel_desc_callback(channel, lambda *report: seen.append(report[2]))
    assert acl.media.vdec_create_channel(channel) == 0
    helper = Decoder.__new__(Decoder)
    helper.acl, helper.media, helper.form = acl, acl.media, 1
    helper.buffer, _ = acl.media.dvpp_malloc(1 << 16)
    for number, data in enumerate(frames(3)):
        desc, pic = helper.stream_desc(data), helper.picture()
        assert acl.media.vdec_send_frame(channel, desc, pic, acl.media.vdec_create_frame_config(), number) == 0
    assert acl.rt.process_report(2000) == 0
    assert acl.media.vdec_destroy_channel(channel) == 0
    assert seen == [0, 1, 2]


def test_a_callback_that_raises_does_not_stop_the_channel(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    decoder.close()
    count = 0

    def callback(*report: object) -> None:
        nonlocal count
        count += 1
        raise ValueError("wrong")

    acl.media.vdec_set_channel_desc_callback(decoder.channel, callback)
    assert acl.media.vdec_create_channel(decoder.channel) == 0
    for number, data in enumerate(frames(4)):
        assert decoder.send(data, number) == 0
    assert decoder.close() == 0
    assert count == 4


# ---- VENC
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


@pytest.mark.parametrize(("entype", "codec"), [(0, "hevc"), (3, "h264")])
def test_pictures_are_encoded_and_reported(acl: ModuleType, reporter: Reporter, entype: int, codec: str) -> None:
    from anycann.media.video_decoder import VideoDecoder

    media, coded, users = acl.media, list[bytes](), list[object]()

    def callback(pic: int, stream_desc: int, user_data: object) -> None:
        assert media.dvpp_get_stream_desc_ret_code(stream_desc) == 0
        size = media.dvpp_get_stream_desc_size(stream_desc)
        coded.append(acl.util.ptr_to_bytes(media.dvpp_get_stream_desc_data(stream_desc), size))
        users.append(user_data)

    channel = encoder_channel(acl, reporter, callback, entype)
    assert media.venc_create_channel(channel) == 0
    config = media.venc_create_frame_config()
    for number in range(6):
        assert media.venc_send_frame(channel, input_picture(acl, 30 + 20 * number), 0, config, number) == 0
    assert media.venc_set_frame_config_eos(config, 1) == 0
    assert media.venc_get_frame_config_eos(config) == 1
    assert media.venc_send_frame(channel, 0, 0, config, None) == 0
    assert users == list(range(6))
    decoder = VideoDecoder(codec)  # type: ignore[arg-type]
    seen = [view for data in coded for view in decoder.decode(data)] + decoder.flush()
    assert [abs(int(view.planes[0][9, 9, 0]) - 30 - 20 * number) <= 3 for number, view in enumerate(seen)] == [True] * 6
    assert media.venc_destroy_channel(channel) == 0
    assert [media.venc_destroy_channel_desc(channel), media.venc_destroy_frame_config(config)] == [0, 0]


def test_bad_calls_of_an_encoder_are_named(acl: ModuleType, reporter: Reporter) -> None:
    media = acl.media
    channel = encoder_channel(acl, reporter, print)
    config = media.venc_create_frame_config()
    assert media.venc_send_frame(channel, 0, 0, config, None) == INVALID
    assert "venc_create_channel first" in acl.get_recent_err_msg()
    media.venc_set_channel_desc_pic_width(channel, 33)
    assert media.venc_create_channel(channel) == INVALID
    assert "the width of the pictures is 33; accepted: even numbers" in acl.get_recent_err_msg()
    media.venc_set_channel_desc_pic_width(channel, WIDTH)
    assert media.venc_set_channel_desc_param(channel, 5, 90) == (channel, 0)
    assert media.venc_get_channel_desc_param(channel, 5) == (4, 90, 0)
    assert media.venc_get_channel_desc_param(channel, 99)[2] == INVALID
    media.venc_set_channel_desc_pic_height(channel, HEIGHT)
    assert media.venc_create_channel(channel) == 0
    assert media.venc_get_channel_desc_channel_id(channel) == 0
    assert media.venc_send_frame(channel, 0, 0, config, None) == INVALID
    assert "accepted: a picture, or eos" in acl.get_recent_err_msg()
    pic = input_picture(acl, 9)
    media.dvpp_set_pic_desc_size(pic, 10)
    assert media.venc_send_frame(channel, pic, 0, config, None) == INVALID
    assert "the picture has 10 bytes" in acl.get_recent_err_msg()
    assert media.venc_set_frame_config_force_i_frame(config, 2) == INVALID
    assert media.venc_destroy_channel(channel) == 0
    assert media.venc_destroy_channel(channel) == INVALID
