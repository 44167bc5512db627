"""Where the text is: what goes into PP-OCR's detection model, and boxes out of the probability map it gives.

The model and its post-processing are "Real-time Scene Text Detection with Differentiable Binarization" (Liao et al., AAAI 2020):
pixels over a threshold form regions, each region gets a turned rectangle, and the rectangle grows by a share of its area.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from examples.ocr.geometry import Rectangle, components, mean_inside, smallest_rectangle

GEARS = ((736, 960), (960, 736), (736, 736), (960, 960))  # height, width: the sizes that the model is compiled for
PIXEL_THRESHOLD = 0.3
BOX_THRESHOLD = 0.5
UNCLIP_RATIO = 1.6
SMALLEST_SIDE = 3.0


@dataclass(frozen=True)
class Canvas:
    """`data` [1, 3, height, width] float32 for the model; picture coordinates are canvas coordinates times `to_picture`."""

    data: NDArray[np.float32]
    to_picture: float


def prepare(picture: Image.Image) -> Canvas:
    """Scale the picture into the gear that it fills best, at the top left of a grey canvas; channels BGR in -1..1."""
    gear_height, gear_width = max(GEARS, key=lambda gear: _filled(picture, gear))
    scale = min(gear_height / picture.height, gear_width / picture.width)
    width, height = round(picture.width * scale), round(picture.height * scale)
    pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    data = np.zeros((1, 3, gear_height, gear_width), np.float32)
    data[0, :, :height, :width] = (pixels[..., ::-1] / 127.5 - 1.0).transpose(2, 0, 1)
    return Canvas(data, 1.0 / scale)


def _filled(picture: Image.Image, gear: tuple[int, int]) -> float:
    """The share of the gear's area that the scaled picture covers."""
    scale = min(gear[0] / picture.height, gear[1] / picture.width)
    return picture.height * scale * picture.width * scale / (gear[0] * gear[1])


def boxes(probability: NDArray[np.float32], canvas: Canvas) -> list[Rectangle]:
    """Text boxes in picture coordinates, in reading order, from the model's output [1, 1, height, width]."""
    found = []
    scores = probability[0, 0]
    for points in components(_dilated(scores > PIXEL_THRESHOLD)):
        rectangle = smallest_rectangle(points)
        if min(rectangle.width, rectangle.height) < SMALLEST_SIDE or mean_inside(scores, rectangle) < BOX_THRESHOLD:
            continue
        area, perimeter = rectangle.width * rectangle.height, 2 * (rectangle.width + rectangle.height)
        found.append(rectangle.grown(area * UNCLIP_RATIO / perimeter).scaled(canvas.to_picture))
    return reading_order(found)


def _dilated(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask grown by one pixel to the right and down, which closes hairline gaps between strokes."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:, 1:] |= grown[:, :-1].copy()
    return grown


def reading_order(rectangles: list[Rectangle]) -> list[Rectangle]:
    """Line by line from the top, each line from the left, "top" and "left" along the median slope of the text.

    A box belongs to a line if its middle lies within the line's first box.
    """
    if not rectangles:
        return []
    edges = np.array([rectangle.corners[1] - rectangle.corners[0] for rectangle in rectangles])
    slope = float(np.median(np.arctan2(edges[:, 1], edges[:, 0])))
    right, down = np.array([np.cos(slope), np.sin(slope)]), np.array([-np.sin(slope), np.cos(slope)])
    lines: list[list[Rectangle]] = []
    for rectangle in sorted(rectangles, key=lambda r: float(r.centre @ down)):
        if lines and (rectangle.centre - lines[-1][0].centre) @ down < 0.4 * lines[-1][0].height:
            lines[-1].append(rectangle)
        else:
            lines.append([rectangle])
    return [rectangle for line in lines for rectangle in sorted(line, key=lambda r: float(r.centre @ right))]
