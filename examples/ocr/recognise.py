"""What the text says: a line cut out of the picture, what goes into PP-OCR's recognition model, and characters out of its answer."""

from __future__ import annotations

from dataclasses import dataclass
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
import onnx
from PIL import Image

from examples.ocr.geometry import Rectangle

HEIGHT = 48
GEARS = (160, 320, 480, 640, 960)  # widths that the model is compiled for
BLANK = 0


@dataclass(frozen=True)
class Text:
    """A line of text and the mean probability of its characters, 0..1."""

    text: str
    confidence: float


def characters(model: Path) -> list[str]:
    """The model's alphabet by class number. The ONNX file lists it in its metadata; class 0 is CTC's blank, the last one a space."""
    metadata = {entry.key: entry.value for entry in onnx.load(model, load_external_data=False).metadata_props}
    return ["", *metadata["character"].splitlines(), " "]


def cut_out(picture: Image.Image, rectangle: Rectangle) -> Image.Image:
    """The upright picture of what is in the rectangle; a tall one (vertical text) is laid on its side."""
    width, height = max(1, round(rectangle.width)), max(1, round(rectangle.height))
    corner, right, down = rectangle.corners[0], rectangle.corners[1] - rectangle.corners[0], rectangle.corners[3] - rectangle.corners[0]
    matrix = (right[0] / width, down[0] / height, corner[0], right[1] / width, down[1] / height, corner[1])
    line = picture.transform((width, height), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)
    return line.transpose(Image.Transpose.ROTATE_90) if height >= 1.5 * width else line


def prepare(line: Image.Image) -> NDArray[np.float32]:
    """[1, 3, 48, gear] float32, channels BGR in -1..1: the line scaled to 48 rows, the rest of the narrowest gear that holds it zero."""
    natural = math.ceil(HEIGHT * line.width / line.height)
    gear = next((width for width in GEARS if natural <= width), GEARS[-1])
    width = min(natural, gear)
    pixels = np.asarray(line.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32)
    data = np.zeros((1, 3, HEIGHT, gear), np.float32)
    data[0, :, :, :width] = (pixels[..., ::-1] / 127.5 - 1.0).transpose(2, 0, 1)
    return data


def decode(probabilities: NDArray[np.float32], alphabet: list[str]) -> Text:
    """Greedy CTC: the best class of each step, repetitions taken once, blanks left out. `probabilities` is [1, steps, classes]."""
    best, score = probabilities[0].argmax(1), probabilities[0].max(1)
    kept = best != BLANK
    kept[1:] &= best[1:] != best[:-1]
    text = "".join(alphabet[number] for number in best[kept])
    return Text(text, float(score[kept].mean()) if text else 0.0)
