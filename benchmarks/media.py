"""Pictures beside OpenCV and Pillow on one thread: `python -m benchmarks.media --document docs/benchmarks-pictures.md`.

A JPEG file of 420, of 444 and of grey decoded and scaled to 224 x 224, here by acl.media to YUV420SP, there to BGR or RGB; the same and
further to the float32 planes that a network takes, here by AIPP; and YUV420SP to RGB. OpenCV is measured if it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
import importlib
from importlib import metadata
import io
import itertools
from pathlib import Path
import shlex
import sys
import time
from types import ModuleType
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
import onnx
import onnx_ir as ir

from anycann.acl.namespace import fill
from anycann.frontends.aipp.graph import insert_dynamic_aipp
from anycann.media.convert import convert
from anycann.media.formats import FORMATS
from anycann.media.libraries import jpeg_library
from anycann.media.picture import new_picture
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.plan import TensorSpec
from anycann.picture_input import Aipp, picture_table
from benchmarks.machine import this_machine

SIZES = ((640, 480), (1024, 683), (1920, 1080), (4000, 3000))
STORED = {"420": "YUV 420", "444": "YUV 444", "Gray": "grey"}  # as the library calls them -> as the page does
WANTED = 224
MEANS, FACTORS = (124, 117, 104), (0.0171, 0.0175, 0.0174)  # of R, G, B
PEERS = ("OpenCV", "Pillow")


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

    def run(self) -> NDArray[np.uint8]:
        """Decode and scale once, and wait. The bytes of the scaled picture."""
        self.acl.media.dvpp_jpeg_decode_async(self.channel, self.file, self.size, self.decoded, self.stream)
        self.acl.media.dvpp_vpc_resize_async(self.channel, self.decoded, self.scaled, self.config, self.stream)
        if self.acl.rt.synchronize_stream(self.stream):
            raise RuntimeError(self.acl.get_recent_err_msg())
        pixels: NDArray[np.uint8] = self.acl.util.ptr_to_numpy(
            self.acl.media.dvpp_get_pic_desc_data(self.scaled), (WANTED * WANTED * 3 // 2,), 2
        )
        return pixels


def photograph(width: int, height: int) -> NDArray[np.uint8]:
    """Waves with a little noise: compresses as a photograph does."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([127 + 100 * np.sin(x / (37 + 9 * n) + n) * np.cos(y / (51 - 7 * n)) for n in range(3)], -1)
    return np.clip(waves + np.random.default_rng(0).normal(0, 4, waves.shape), 0, 255).astype(np.uint8)


def _network_input() -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    """AIPP from YUV420SP (BT.601, all of 0 to 255) to float32[3, 224, 224] of R, G and B."""
    block = Aipp(aipp_mode="static", input_format="YUV420SP_U8", csc_switch=True, matrix_r0c0=256, matrix_r0c1=0, matrix_r0c2=359,
                 matrix_r1c0=256, matrix_r1c1=-88, matrix_r1c2=-183, matrix_r2c0=256, matrix_r2c1=454, matrix_r2c2=0, input_bias_0=0,
                 mean_chn_0=MEANS[0], mean_chn_1=MEANS[1], mean_chn_2=MEANS[2], var_reci_chn_0=FACTORS[0], var_reci_chn_1=FACTORS[1],
                 var_reci_chn_2=FACTORS[2])  # fmt: skip
    table, nbytes = picture_table([block], (3, WANTED, WANTED))
    shape = f"float[1, 3, {WANTED}, {WANTED}]"
    text = f'<ir_version: 10, opset_import: ["": 20]> pictures ({shape} picture) => ({shape} made) {{ made = Identity(picture) }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    insert_dynamic_aipp(model.graph, model.graph.inputs[0], nbytes, "NCHW")
    specs = [TensorSpec("picture", "uint8", (nbytes,)), TensorSpec("aipp/picture/settings", "int32", table.shape)]
    program = ModelPrograms(model, SessionOptions(), 1).find(specs).executable
    return lambda picture: np.asarray(program.run([picture.reshape(-1), table])[0])


def _normalised(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What programs do with [rows, columns, R G B]."""
    scaled = (pixels.astype(np.float32) - np.array(MEANS, np.float32)) * np.array(FACTORS, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def file_of(stored: str, width: int, height: int) -> bytes:
    """A JPEG file of that size, its colours stored so."""
    pixels = photograph(width, height)
    if stored == "Gray":
        return jpeg_library().encode_jpeg(np.ascontiguousarray(pixels[..., :1]), 90, "GRAY", stored)
    return jpeg_library().encode_jpeg(pixels, quality=90, colorsubsampling=stored)


def file_ways(acl: Any, stored: str, width: int, height: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What is measured with a file: a name, and who does it how."""
    from PIL import Image

    file = file_of(stored, width, height)
    dvpp, network_input = Dvpp(acl, file, width, height), _network_input()

    def pillow() -> NDArray[np.uint8]:
        return np.asarray(Image.open(io.BytesIO(file)).resize((WANTED, WANTED), Image.Resampling.BILINEAR).convert("RGB"))

    scaled: dict[str, Callable[[], object]] = {"AnyCANN": dvpp.run, "Pillow": pillow}
    inputs: dict[str, Callable[[], object]] = {"AnyCANN": lambda: network_input(dvpp.run()), "Pillow": lambda: _normalised(pillow())}
    cv2 = _opencv()
    if cv2 is not None:
        coded = np.frombuffer(file, np.uint8)
        scaled["OpenCV"] = lambda: cv2.resize(cv2.imdecode(coded, 1), (WANTED, WANTED))
        inputs["OpenCV"] = lambda: _normalised(cv2.cvtColor(cv2.resize(cv2.imdecode(coded, 1), (WANTED, WANTED)), cv2.COLOR_BGR2RGB))
    name = f"JPEG, {STORED[stored]}, decoded"
    return {f"{name} and scaled": scaled, f"{name}, scaled, AIPP": inputs}


def colour_ways(width: int, height: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What is measured without a file."""
    source, target = new_picture(FORMATS[1], width, height), new_picture(FORMATS[12], width, height)
    source.data[:] = 100
    colours: dict[str, Callable[[], object]] = {"AnyCANN": lambda: convert(source.view(), target.view())}
    cv2, yuv = _opencv(), source.data.reshape(-1, width)
    if cv2 is not None:
        colours["OpenCV"] = lambda: cv2.cvtColor(yuv, cv2.COLOR_YUV2RGB_NV12)
    return {"YUV420SP to RGB": colours}


def _opencv() -> Any:
    """OpenCV on one thread; None if it is not installed."""
    try:
        cv2: Any = importlib.import_module("cv2")
    except ImportError:
        return None
    cv2.setNumThreads(1)
    return cv2


@dataclass(frozen=True)
class Row:
    """Milliseconds of processor time by who took them."""

    size: str
    what: str
    milliseconds: dict[str, float]

    def line(self) -> str:
        """Of the table."""
        own = self.milliseconds["AnyCANN"]
        cells = [f"{own:.2f}"]
        for peer in PEERS:
            taken = self.milliseconds.get(peer)
            cells += ["", ""] if taken is None else [f"{taken:.2f}", f"{taken / own:.2f}"]
        return f"| {self.size} | {self.what} | {' | '.join(cells)} |"


def measure(acl: Any, seconds: float) -> list[Row]:
    """Every size and way; runs of one way take turns."""
    rows = []
    for (width, height), stored in itertools.product(SIZES, [*STORED, ""]):
        for what, runs in (file_ways(acl, stored, width, height) if stored else colour_ways(width, height)).items():
            times = _in_turn(runs, seconds)
            rows.append(Row(f"{width} x {height}", what, {name: float(np.quantile(taken, 0.1)) * 1e3 for name, taken in times.items()}))
    return rows


def _in_turn(runs: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Seconds of processor time of each run, one after the other in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():  # compiles what is compiled when it is first used
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in runs.items():
            started = time.process_time()
            run()
            times[name].append(time.process_time() - started)
    return times


def table(rows: Sequence[Row]) -> list[str]:
    """Of Markdown."""
    heads = ["picture", "what", "AnyCANN ms", *(head for peer in PEERS for head in (f"{peer} ms", "times as long"))]
    rule = ["---", "---", *["---:"] * (len(heads) - 2)]
    return [f"| {' | '.join(heads)} |", f"| {' | '.join(rule)} |", *(row.line() for row in rows)]


def page(rows: Sequence[Row], command: str) -> str:
    """The document."""
    machine = this_machine([1])
    versions = ", ".join(f"{name} {version}" for name, version in {**machine.versions, **_peer_versions()}.items())
    lines = [
        "# Benchmarks of pictures",
        "",
        "Written by `python -m benchmarks.media`; do not edit. The numbers below were made by",
        "",
        "```text",
        command,
        "```",
        "",
        f"on {machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB; {machine.system}. Versions: {versions}.",
        "",
        "One thread. A JPEG file of quality 90 (waves with noise) is decoded and scaled to 224 x 224: here by `acl.media`, with its stream",
        "and its waiting, to YUV420SP, whatever the file has; by OpenCV to BGR, by Pillow (a mean over all pixels) to RGB. With AIPP it",
        "goes on to float32 planes of R, G and B, from which a mean was taken and which were scaled: here by the kernel of dynamic AIPP,",
        "there with numpy. Who is measured takes turns. Times are of the processor time that the whole process took, and a tenth of them",
        "is below the one that is given: what else the machine does should not matter. What a thread takes to wake is not in them.",
        "",
        *table(rows),
    ]
    return "\n".join(lines) + "\n"


def _peer_versions() -> dict[str, str]:
    found = {}
    for name in ("opencv-python-headless", "pillow", "simplejpeg"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@click.command
@click.option("--seconds", type=float, default=3.0, show_default=True, help="for each size and each row")
@click.option("--document", type=click.Path(path_type=Path), help="The page to write.")
def main(seconds: float, document: Path | None) -> None:
    """Milliseconds of processor time, and how many times as long the others take."""
    acl: Any = ModuleType("acl")
    fill(acl)
    acl.init()
    acl.rt.set_device(0)
    rows = measure(acl, seconds)
    print(*table(rows), sep="\n")
    if document:
        document.write_text(page(rows, shlex.join(["python", "-m", "benchmarks.media", *sys.argv[1:]])), encoding="utf-8")


if __name__ == "__main__":
    main()
