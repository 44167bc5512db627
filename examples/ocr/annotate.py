"""The picture with a box around every line and its number and confidence beside it."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from examples.ocr.reader import Reading

GOOD, DOUBTFUL = (0, 140, 70), (210, 60, 30)


def annotate(picture: Image.Image, reading: Reading) -> Image.Image:
    """A copy of `picture` with numbered boxes: green where the confidence is 0.9 or more, red below."""
    marked = picture.copy()
    draw = ImageDraw.Draw(marked)
    font = ImageFont.load_default(size=13)
    for number, line in enumerate(reading.lines, start=1):
        colour = GOOD if line.text.confidence >= 0.9 else DOUBTFUL
        corners = [(float(x), float(y)) for x, y in line.box.corners]
        draw.line([*corners, corners[0]], fill=colour, width=2)
        label = f"{number}  {line.text.confidence:.2f}"
        x, y = corners[0][0], corners[0][1] - 15
        draw.rectangle(draw.textbbox((x, y), label, font), fill=(255, 255, 255))
        draw.text((x, y), label, colour, font)
    return marked
