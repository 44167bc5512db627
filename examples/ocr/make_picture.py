"""Draws `receipt.png`, the picture that the example reads: a receipt lying a little askew on a table, photographed with some noise.

The picture is kept in the repository; this file says how it came to be. It needs Noto Sans CJK (on Debian: `fonts-noto-cjk`):

    python -m examples.ocr.make_picture NotoSansCJK-Regular.ttc NotoSansCJK-Bold.ttc examples/ocr/receipt.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

PICTURE_SIZE = (672, 880)  # width, height
PAPER_SIZE = (560, 800)
ANGLE_DEGREES = 1.8


@dataclass(frozen=True)
class Line:
    """One line of the receipt: text at the left (or centred), and at the right if there is any."""

    y: int
    size: int
    left: str
    right: str = ""
    bold: bool = False
    centred: bool = False


LINES = (
    Line(26, 62, "云山茶馆", bold=True, centred=True),
    Line(114, 30, "Cloud Mountain Tea House", centred=True),
    Line(166, 22, "杭州市西湖区龙井路 88 号", centred=True),
    Line(226, 22, "2026-11-21 14:35", "桌号 07"),
    Line(288, 26, "龙井绿茶 × 2", "¥56.00"),
    Line(338, 26, "Jasmine tea × 1", "¥28.00"),
    Line(388, 26, "红豆糕 × 3", "¥45.00"),
    Line(438, 26, "Walnut cookies × 1", "¥19.80"),
    Line(512, 36, "合计 Total", "¥148.80", bold=True),
    Line(590, 22, "微信支付", "NO. 20261121-0042"),
    Line(662, 30, "谢谢惠顾，欢迎再来！", centred=True),
    Line(716, 18, "Thank you. Wi-Fi password: cloudtea2026", centred=True),
)


def draw_paper(regular: str, bold: str) -> Image.Image:
    """The receipt, straight and clean."""
    paper = Image.new("RGB", PAPER_SIZE, (250, 248, 240))
    draw = ImageDraw.Draw(paper)
    for y in (270, 494):
        draw.line([(34, y - 2), (PAPER_SIZE[0] - 34, y - 2)], fill=(120, 116, 110), width=2)
    for line in LINES:
        font = ImageFont.truetype(bold if line.bold else regular, line.size, index=2)  # face 2 of the collection: Simplified Chinese
        ink = (34, 34, 40)
        width = draw.textlength(line.left, font)
        draw.text(((PAPER_SIZE[0] - width) / 2 if line.centred else 40, line.y), line.left, ink, font)
        if line.right:
            draw.text((PAPER_SIZE[0] - 40 - draw.textlength(line.right, font), line.y), line.right, ink, font)
    return paper


def photograph(paper: Image.Image, seed: int = 7) -> Image.Image:
    """The paper on a table: turned, shaded from one corner, slightly blurred, with noise; 20 colours keep the file small."""
    width, height = PICTURE_SIZE
    picture = Image.new("RGB", PICTURE_SIZE, (126, 92, 66))
    turned = paper.convert("RGBA").rotate(ANGLE_DEGREES, Image.Resampling.BICUBIC, expand=True)
    picture.paste(turned, ((width - turned.width) // 2, (height - turned.height) // 2), turned)
    pixels = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.6)), np.float32)
    shade = 1.0 - 0.16 * (np.linspace(0, 1, height)[:, None] + np.linspace(0, 1, width)[None, :]) / 2
    noise = np.random.default_rng(seed).normal(0, 2.0, (height, width, 1))
    photo = Image.fromarray(np.clip(pixels * shade[..., None] + noise, 0, 255).astype(np.uint8))
    return photo.quantize(20, dither=Image.Dither.NONE)


def main() -> None:
    """`make_picture REGULAR.ttc BOLD.ttc OUT.png`"""
    regular, bold, out = sys.argv[1:]
    photograph(draw_paper(regular, bold)).save(out, optimize=True)
    print(f"{out}: {PICTURE_SIZE[0]} x {PICTURE_SIZE[1]}, {Path(out).stat().st_size} bytes")


if __name__ == "__main__":
    main()
