"""VDEC as a program calls it: callbacks in the thread that it named, and no hang whatever it does."""

from __future__ import annotations

from fractions import Fraction
import threading
import time
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest

from anycann.media.formats import FORMATS
from anycann.media.picture import Picture
from anycann.media.video_encoder import EncoderSettings, VideoEncoder
from tests.acl.video_calls import (
    HEIGHT,
    INVALID,
    NO_PICTURE,
    TIMEOUT,
    WIDTH,
    Decoder,
    Reporter,
    frames,
)


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


def test_destroying_does_not_hang_when_the_thread_is_gone(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.acl.media_reports.PATIENCE_S", 600)
    reporter = Reporter(acl)
    decoder = Decoder(acl, reporter)
    reporter.stop()
    assert decoder.send(frames(1)[0], 0) == 0
    begin = time.monotonic()
    assert decoder.close() == TIMEOUT
    assert "takes no reports" in acl.get_recent_err_msg() or "it ended" in acl.get_recent_err_msg()
    assert time.monotonic() - begin < 600


def test_destroying_does_not_hang_when_a_callback_is_stuck(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.acl.media_reports.PATIENCE_S", 0.3)
    reporter, release = Reporter(acl), threading.Event()
    decoder = Decoder(acl, reporter)
    acl.media.vdec_destroy_channel(decoder.channel)
    acl.media.vdec_set_channel_desc_callback(decoder.channel, lambda *rest: release.wait(600))
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
    assert acl.rt.process_report(600_000) == 0
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


# ---- streams that are not as simple
def h265_frames(bits: int, levels: list[int]) -> list[bytes]:
    """Flat pictures of so many bits a sample."""
    context: Any = av.CodecContext.create("libx265", "w")
    context.width, context.height, context.pix_fmt = WIDTH, HEIGHT, "yuv420p10le" if bits == 10 else "yuv420p"
    context.time_base = Fraction(1, 25)
    context.options = {"preset": "veryfast", "tune": "zerolatency", "x265-params": "log-level=none:repeat-headers=1"}
    coded = []
    for number, level in enumerate(levels):
        frame = av.VideoFrame(WIDTH, HEIGHT, context.pix_fmt)
        for plane, value in zip(frame.planes, (level, 128, 128), strict=True):
            np.frombuffer(plane, np.uint16 if bits == 10 else np.uint8)[:] = value << (bits - 8)
        frame.pts, frame.time_base = number, context.time_base
        coded += [bytes(packet) for packet in context.encode(frame)]
    return coded + [bytes(packet) for packet in context.encode(None)]


def test_samples_of_ten_bits_become_eight(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter, entype=0, bit_depth=1)
    for number, data in enumerate(h265_frames(10, [40, 120, 200])):
        assert decoder.send(data, number) == 0
    assert decoder.close() == 0
    assert [entry[:2] for entry in decoder.seen] == [(0, 0), (1, 0), (2, 0)]
    assert all(abs(first - level) <= 2 for (_, _, first), level in zip(decoder.seen, (40, 120, 200), strict=True))


def test_a_stream_may_change_its_size(acl: ModuleType, reporter: Reporter) -> None:
    decoder, small = Decoder(acl, reporter), VideoEncoder(EncoderSettings("h264", "main", 64, 48, 250))
    pictures = [decoder.picture() for _ in range(4)]
    level = Picture(FORMATS[1], 64, 48, 64, 48, np.full(64 * 48 * 3 // 2, 90, np.uint8))
    coded = [*frames(2), small.encode(level)[0], small.encode(level)[0]]
    for data, pic in zip(coded, pictures, strict=True):
        assert decoder.send(data, 0, pic) == 0
    assert decoder.close() == 0
    sizes = [
        tuple(getattr(acl.media, f"dvpp_get_pic_desc_{name}")(pic) for name in ("width", "height", "width_stride")) for pic in pictures
    ]
    assert sizes == [(WIDTH, HEIGHT, WIDTH)] * 2 + [(64, 48, 64)] * 2
    assert [code for _, code, _ in decoder.seen] == [0] * 4


def test_a_picture_of_another_size_than_the_stream_says_so(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    pic = decoder.picture()
    for name, number in (("width", 64), ("height", 48), ("width_stride", 64), ("height_stride", 48)):
        getattr(acl.media, f"dvpp_set_pic_desc_{name}")(pic, number)
    coded = frames(2)
    assert [decoder.send(coded[0], 0, pic), decoder.send(coded[1], 1), decoder.close()] == [0, 0, 0]
    assert [entry[:2] for entry in decoder.seen] == [(0, INVALID), (1, 0)]


def test_a_picture_destroyed_before_its_frame_is_decoded_is_only_missed(acl: ModuleType, reporter: Reporter) -> None:
    decoder = Decoder(acl, reporter)
    seen: list[object] = []
    acl.media.vdec_destroy_channel(decoder.channel)
    acl.media.vdec_set_channel_desc_callback(decoder.channel, lambda stream_desc, pic, user: seen.append(user))
    assert acl.media.vdec_create_channel(decoder.channel) == 0
    coded = frames(3)
    for number, data in enumerate(coded):
        pic = decoder.picture()
        assert decoder.send(data, number, pic) == 0
        acl.media.dvpp_destroy_pic_desc(pic)
    assert decoder.close() == 0
    assert seen == [0, 1, 2]
