from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anycann.media.formats import FORMATS
from anycann.media.picture import Picture, View
from anycann.media.video_decoder import Codec, VideoDecoder, store
from anycann.media.video_encoder import EncoderSettings, VideoEncoder
from anycann.support.errors import UsageError
from tests.media.pictures import poisoned, random_picture


def scene(number: int, width: int = 128, height: int = 96) -> Picture:
    picture = random_picture(1, width, height)
    y, x = np.mgrid[0:height, 0:width]
    luma, chroma = picture.view().planes
    luma[..., 0] = (x + y + 5 * number) // 2 % 200 + 20
    chroma[:] = 100 + number
    return picture


def encode(codec: Codec, count: int, interval: int = 8) -> list[bytes]:
    encoder = VideoEncoder(EncoderSettings(codec, "main", 128, 96, interval))
    frames = [frame for number in range(count) for frame in encoder.encode(scene(number))]
    return frames + encoder.flush()


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_what_is_encoded_is_decoded_frame_by_frame(codec: Codec) -> None:
    frames = encode(codec, 12)
    assert len(frames) == 12
    decoder, seen = VideoDecoder(codec), list[View]()
    for number, frame in enumerate(frames):
        seen += decoder.decode(frame)
        assert len(seen) == number + 1  # nothing is held back
    assert decoder.flush() == []
    for number, view in enumerate(seen):
        target = poisoned(2, 128, 96)
        store(view, target)
        luma, chroma = target.view().planes
        assert np.abs(luma.astype(int) - scene(number).view().planes[0]).mean() < 2
        assert np.abs(chroma.astype(int) - 100 - number).max() <= 3


def test_a_key_frame_can_be_asked_for() -> None:
    encoder = VideoEncoder(EncoderSettings("h264", "baseline", 128, 96, 250))
    frames = [encoder.encode(scene(number), force_key_frame=number == 5)[0] for number in range(8)]
    assert [b"\0\0\1\x65" in frame for frame in frames] == [number in (0, 5) for number in range(8)]  # NAL unit of an IDR picture


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_settings_that_the_library_refuses_leave_the_encoder_as_it_was(codec: Codec) -> None:
    good = EncoderSettings(codec, "main", 128, 96, 250)
    encoder = VideoEncoder(good)
    (first,) = encoder.encode(scene(0))
    with pytest.raises(UsageError, match="cannot be encoded"):
        encoder.change(replace(good, key_frame_interval=1 << 40))
    assert encoder.settings == good
    (second,) = encoder.encode(scene(1))
    assert len(second) < len(first) / 2  # no key frame


def test_pictures_come_in_order_of_display() -> None:
    av = pytest.importorskip("av")
    from fractions import Fraction

    context = av.CodecContext.create("libx264", "w")
    context.width, context.height, context.pix_fmt, context.time_base = 128, 96, "yuv420p", Fraction(1, 25)
    context.options = {"bf": "2"}
    packets = []
    for number in range(10):
        frame = av.VideoFrame.from_ndarray(np.full((144, 128), 20 + 20 * number, np.uint8), "yuv420p")
        frame.pts = number
        packets += context.encode(frame)
    packets += context.encode(None)
    decoder = VideoDecoder("h264")
    seen = [view for packet in packets for view in decoder.decode(bytes(packet))] + decoder.flush()
    levels = [int(view.planes[0][50, 50, 0]) for view in seen]
    assert len(levels) == 10
    assert levels == sorted(levels)


def test_damage_and_wrong_sizes_are_named() -> None:
    with pytest.raises(UsageError, match="h264 frame cannot be decoded"):
        VideoDecoder("h264").decode(b"\0\0\0\1garbage")
    encoder = VideoEncoder(EncoderSettings("h264", "main", 128, 96, 8))
    with pytest.raises(UsageError, match="64 x 64 pixels; the encoder 128 x 96"):
        encoder.encode(scene(0, 64, 64))
    view = View(FORMATS[1], 128, 96, scene(0).view().planes)
    with pytest.raises(UsageError, match="128 x 96 pixels; the target 64 x 64"):
        store(view, poisoned(1, 64, 64))
