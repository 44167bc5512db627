"""Read the text in a picture with AnyCANN, and with ONNX Runtime beside it if that is installed.

The two offline models are made by `anycann atc` (see `scripts/demo`); `--originals` is the folder of the ONNX files they came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
import importlib
import importlib.util
from pathlib import Path
import sys

import click
from PIL import Image

from examples.ocr.annotate import annotate
from examples.ocr.compare import HEADER, agreement, measure
from examples.ocr.reader import Reader
from examples.ocr.recognise import characters


@dataclass(frozen=True)
class Files:
    """The models: two offline ones, and the folder of the package's ONNX files."""

    detection: Path
    recognition: Path
    originals: Path

    @property
    def onnx(self) -> tuple[Path, Path]:
        """The ONNX files of detection and recognition."""
        return self.originals / "PP-OCRv6_det_small.onnx", self.originals / "PP-OCRv6_rec_small.onnx"


def open_anycann(files: Files, alphabet: list[str], threads: int) -> Reader:
    """The two offline models."""
    from anycann import InferenceSession

    detection, recognition = (InferenceSession(file, num_threads=threads) for file in (files.detection, files.recognition))
    return Reader(detection, recognition, alphabet)


def open_onnxruntime(files: Files, alphabet: list[str], threads: int) -> Reader:
    """The two ONNX files on ONNX Runtime's CPU provider, with the same number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry(
        "session.force_spinning_stop", "1"
    )  # between runs its threads leave the processors to the other engine
    detection, recognition = (onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]) for file in files.onnx)
    return Reader(detection, recognition, alphabet)


ENGINES = (("AnyCANN", "anycann.session", open_anycann), ("ONNX Runtime", "onnxruntime", open_onnxruntime))


def engines(files: Files, threads: int) -> dict[str, Callable[[], Reader]]:
    """The engines that are installed, by the name printed for them, their packages imported: opening is then loading the models."""
    alphabet = characters(files.onnx[1])
    found: dict[str, Callable[[], Reader]] = {}
    for name, module, opener in ENGINES:
        if importlib.util.find_spec(module):
            importlib.import_module(module)
            found[name] = partial(opener, files, alphabet, threads)
    return found


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command
@click.argument("picture", type=FILE, default=Path(__file__).parent / "receipt.png")
@click.option("--detection", type=FILE, required=True, help="Offline model that finds the lines.")
@click.option("--recognition", type=FILE, required=True, help="Offline model that reads a line.")
@click.option("--originals", type=FOLDER, required=True, help="Folder of the ONNX files.")
@click.option("--annotated", type=click.Path(path_type=Path), default="annotated.png", show_default=True, help="Where to draw the boxes.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Pictures timed after the first.")
def main(picture: Path, detection: Path, recognition: Path, originals: Path, annotated: Path, threads: int, runs: int) -> None:
    """Read the text in PICTURE, and say whether ONNX Runtime reads the same: exit status 1 if it does not."""
    image = Image.open(picture).convert("RGB")
    measured = measure(engines(Files(detection, recognition, originals), threads), image, runs)
    reading = measured[0].reading
    print(f"{picture.name}: {image.width} x {image.height} pixels, {len(reading.lines)} lines of text, with their confidence\n")
    for number, line in enumerate(reading.lines, start=1):
        print(f"{number:>4}  {line.text.confidence:.3f}  {line.text.text}")
    print(f"\n{HEADER}", *(row.row() for row in measured), sep="\n")
    print(f"\n{measured[0].name}: {measured[0].picture_seconds * 1000:.0f} ms a picture (median of {runs}, {threads} thread(s))")
    annotate(image, reading).save(annotated)
    print(f"annotated picture: {annotated}")
    agree = True
    for other in measured[1:]:
        same, sentence = agreement(reading, other.reading)
        agree = agree and same
        print(f"{measured[0].name} and {other.name}: {sentence}")
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
