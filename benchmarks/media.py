"""Pictures beside OpenCV and Pillow on one thread: `python -m benchmarks.media`. Ratios are medians of interleaved runs.

JPEG: a file of 420 decoded and scaled to 224 x 224, here by acl.media (to YUV420SP, as models with AIPP take it), there to BGR or RGB.
Colours: YUV420SP to RGB. OpenCV is measured if it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
import importlib
import io
import statistics
import time
from types import ModuleType
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from anycann.acl.namespace import fill
from anycann.media.convert import convert
from anycann.media.formats import FORMATS
from anycann.media.libraries import jpeg_library
from anycann.media.picture import new_picture

SIZES = ((640, 480), (1024, 683), (1920, 1080))
WANTED = 224


class Dvpp:
    """A channel, a stream, and what a decoded and a scaled picture need."""

    def __init__(self, acl: Any, file: bytes, width: int, height: int):
        self.acl = acl
        self.stream, _ = self.acl.rt.create_stream()
        self.channel, self.config = self.acl.media.dvpp_create_channel_desc(), self.acl.media.dvpp_create_resize_config()
        self.acl.media.dvpp_create_channel(self.channel)
        self.size, (self.file, _) = len(file), self.acl.media.dvpp_malloc(len(file))
        self.acl.rt.memcpy(self.file, self.size, self.acl.util.bytes_to_ptr(file), self.size, 1)
        self.decoded = self.picture(width, height, -(-width // 64) * 64, -(-height // 16) * 16)
        self.scaled = self.picture(WANTED, WANTED, WANTED, WANTED)

    def picture(self, width: int, height: int, stride: int, rows: int) -> int:
        """A YUV420SP picture with memory."""
        pic, size = self.acl.media.dvpp_create_pic_desc(), stride * rows * 3 // 2
        numbers = {"data": self.acl.media.dvpp_malloc(size)[0], "size": size, "format": 1, "width": width, "height": height,
                   "width_stride": stride, "height_stride": rows}  # fmt: skip
        for name, number in numbers.items():
            getattr(self.acl.media, f"dvpp_set_pic_desc_{name}")(pic, number)
        return int(pic)

    def run(self) -> None:
        """Decode and scale once, and wait."""
        self.acl.media.dvpp_jpeg_decode_async(self.channel, self.file, self.size, self.decoded, self.stream)
        self.acl.media.dvpp_vpc_resize_async(self.channel, self.decoded, self.scaled, self.config, self.stream)
        if self.acl.rt.synchronize_stream(self.stream):
            raise RuntimeError(self.acl.get_recent_err_msg())


def photograph(width: int, height: int) -> NDArray[np.uint8]:
    """Waves with a little noise: compresses as a photograph does."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([127 + 100 * np.sin(x / (37 + 9 * n) + n) * np.cos(y / (51 - 7 * n)) for n in range(3)], -1)
    return np.clip(waves + np.random.default_rng(0).normal(0, 4, waves.shape), 0, 255).astype(np.uint8)


def ways(acl: Any, width: int, height: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What is measured: a name, and who does it how."""
    from PIL import Image

    file: bytes = jpeg_library().encode_jpeg(photograph(width, height), quality=90, colorsubsampling="420")
    source, target = new_picture(FORMATS[1], width, height), new_picture(FORMATS[12], width, height)
    source.data[:] = 100
    found: dict[str, dict[str, Callable[[], object]]] = {
        "JPEG decoded and scaled": {
            "here": Dvpp(acl, file, width, height).run,
            "Pillow": lambda: np.asarray(Image.open(io.BytesIO(file)).resize((WANTED, WANTED), Image.Resampling.BILINEAR)),
        },
        "YUV420SP to RGB": {"here": lambda: convert(source.view(), target.view())},
    }
    try:
        cv2: Any = importlib.import_module("cv2")
    except ImportError:
        return found
    cv2.setNumThreads(1)
    coded, yuv = np.frombuffer(file, np.uint8), source.data.reshape(-1, width)
    found["JPEG decoded and scaled"]["OpenCV"] = lambda: cv2.resize(cv2.imdecode(coded, 1), (WANTED, WANTED))
    found["YUV420SP to RGB"]["OpenCV"] = lambda: cv2.cvtColor(yuv, cv2.COLOR_YUV2RGB_NV12)
    return found


def medians(runs: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each run, one after the other in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    return times


@click.command
@click.option("--seconds", type=float, default=3.0, show_default=True, help="for each size and each row")
def main(seconds: float) -> None:
    """Milliseconds, and how many times as long the others take."""
    acl: Any = ModuleType("acl")
    fill(acl)
    acl.init()
    acl.rt.set_device(0)
    for width, height in SIZES:
        for what, runs in ways(acl, width, height).items():
            times = medians(runs, seconds)
            own = times.pop("here")
            others = [f"{name} {statistics.median(a / b for a, b in zip(taken, own, strict=True)):.2f}" for name, taken in times.items()]
            print(f"{width} x {height} {what}: {statistics.median(own) * 1e3:.2f} ms; {', '.join(others)}")


if __name__ == "__main__":
    main()
