"""Inputs that mean something to the models: text, faces, tables, digits, speech, the bytes of a file. Made here, nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from examples.ocr import detect, recognise
from examples.ocr.geometry import Rectangle

Floats = NDArray[np.float32]
ROOT = Path(__file__).resolve().parents[2]
RECEIPT = ROOT / "examples" / "ocr" / "receipt.png"
SAMPLE_RATE = 16000


def receipt() -> Image.Image:
    """The demo's picture, RGB."""
    return Image.open(RECEIPT).convert("RGB")


def text_picture() -> Floats:
    """[1, 3, 960, 736]: the receipt as PP-OCR's detection takes it."""
    return detect.prepare(receipt()).data


def text_line(upside_down: bool = False) -> Floats:
    """[1, 3, 48, 480]: the receipt's second line as PP-OCR's recognition takes it."""
    return recognise.prepare(_second_line(upside_down))


def _second_line(upside_down: bool) -> Image.Image:
    box = np.array([[137, 164], [519, 156], [520, 192], [138, 200]], np.float64)
    line = recognise.cut_out(receipt(), Rectangle(box))
    return line.transpose(Image.Transpose.ROTATE_180) if upside_down else line


def text_direction(upside_down: bool) -> Floats:
    """[1, 3, 48, 192]: the same line as PP-OCR's classifier of the direction takes it."""
    line = _second_line(upside_down).resize((192, 48), Image.Resampling.BILINEAR)
    return (np.asarray(line, np.float32)[..., ::-1] / 127.5 - 1).transpose(2, 0, 1)[None].copy()


def captcha(width: int) -> Floats:
    """[1, 1, 64, width] in 0..1: letters and digits, each turned a little, with lines and speckles across."""
    random = np.random.default_rng(11)
    picture = Image.new("L", (width, 64), 235)
    for number, letter in enumerate("8k3FWx"[: max(1, width // 32)]):
        tile = Image.new("L", (40, 60), 0)
        ImageDraw.Draw(tile).text((6, 4), letter, 255, ImageFont.load_default(size=40))
        tile = tile.rotate(float(random.uniform(-18, 18)), Image.Resampling.BICUBIC)
        picture.paste(40, (6 + number * 30, 2), tile)
    draw = ImageDraw.Draw(picture)
    for _ in range(3):
        draw.line([tuple(random.uniform(0, (width, 64))), tuple(random.uniform(0, (width, 64)))], fill=120, width=1)
    noisy = np.asarray(picture, np.float32) + random.normal(0, 8, (64, width))
    return (np.clip(noisy, 0, 255) / 255).astype(np.float32)[None, None]


def photo_of_letters(size: int) -> Floats:
    """[1, 3, size, size] in 0..255, BGR: big letters on a coloured ground, for a detector of characters."""
    picture = Image.new("RGB", (size, size), (190, 205, 220))
    draw = ImageDraw.Draw(picture)
    for number, letter in enumerate("AK7M"):
        at = (size * (0.12 + 0.2 * number), size * (0.2 + 0.15 * (number % 3)))
        draw.text(at, letter, (40 + 40 * number, 30, 90), ImageFont.load_default(size=size // 7))
    return np.asarray(picture, np.float32)[..., ::-1].transpose(2, 0, 1)[None].copy()


def face(size: int) -> Image.Image:
    """A drawn face, RGB: shaded skin, hair, eyes with whites, nose and mouth where a detector expects them."""
    big = 512
    picture = Image.new("RGB", (big, big), (108, 138, 160))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((106, 40, 406, 440), fill=(60, 40, 30))
    draw.ellipse((130, 90, 382, 460), fill=(224, 180, 152))
    for x in (200, 312):
        draw.ellipse((x - 30, 222, x + 30, 258), fill=(245, 245, 245))
        draw.ellipse((x - 14, 226, x + 14, 254), fill=(50, 40, 40))
        draw.arc((x - 38, 186, x + 38, 240), 200, 340, fill=(60, 40, 30), width=8)
    draw.polygon([(256, 250), (236, 330), (276, 330)], fill=(204, 156, 128))
    draw.ellipse((206, 364, 306, 404), fill=(176, 70, 76))
    shade = np.linspace(1.1, 0.75, big)[None, :, None]
    pixels = np.asarray(picture, np.float32) * shade + np.random.default_rng(3).normal(0, 4, (big, big, 1))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).resize((size, size), Image.Resampling.BILINEAR)


def face_channels_last(*sizes: int) -> Floats:
    """[len(sizes), s, s, 3]: the face cropped ever closer, scaled to the last size, as MTCNN takes it (-1..1)."""
    target = sizes[-1]
    crops = [face(512).crop((i * 12, i * 16, 512 - i * 12, 512 - i * 8)).resize((target, target)) for i in range(len(sizes))]
    return (np.stack([np.asarray(crop, np.float32) for crop in crops]) - np.float32(127.5)) * np.float32(0.0078125)


def face_picture(size: int) -> Floats:
    """[1, 3, size, size] in 0..1, RGB."""
    return (np.asarray(face(size), np.float32) / np.float32(255)).transpose(2, 0, 1)[None].copy()


def photo(batch: int = 1) -> Floats:
    """[batch, 3, 224, 224], normalised with ImageNet's mean and deviation: the face, each time mirrored or cropped otherwise."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    pictures = [np.asarray(face(224 + 16 * i).crop((8 * i, 8 * i, 224 + 8 * i, 224 + 8 * i)), np.float32) / 255 for i in range(batch)]
    return np.stack([((picture - mean) / deviation).transpose(2, 0, 1) for picture in pictures]).astype(np.float32)


def table_picture(size: int = 488) -> Floats:
    """[1, 3, size, size], normalised: a ruled table of words and numbers."""
    picture = Image.new("RGB", (size, size), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    columns, rows = 4, 5
    width, height = size - 20, 300
    for row in range(rows + 1):
        draw.line([(10, 20 + row * height // rows), (10 + width, 20 + row * height // rows)], fill=(0, 0, 0), width=2)
    for column in range(columns + 1):
        draw.line([(10 + column * width // columns, 20), (10 + column * width // columns, 20 + height)], fill=(0, 0, 0), width=2)
    for row in range(rows):
        for column in range(columns):
            word = ("Item", "Price", "Count", "Sum")[column] if row == 0 else f"{(row * 37 + column * 53) % 90 + 10}.{row}{column}"
            at = (20 + column * width // columns, 38 + row * height // rows)
            draw.text(at, word, (0, 0, 0), ImageFont.load_default(size=22))
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((np.asarray(picture, np.float32) / 255 - mean) / deviation).transpose(2, 0, 1)[None].astype(np.float32)


def digit(number: int = 5) -> Floats:
    """[1, 1, 28, 28] in 0..255: a digit, white on black."""
    picture = Image.new("L", (112, 112), 0)
    ImageDraw.Draw(picture).text((32, 8), str(number), 255, ImageFont.load_default(size=84))
    return np.asarray(picture.resize((28, 28), Image.Resampling.BILINEAR), np.float32)[None, None].copy()


def speech(seconds: float) -> Floats:
    """[samples] in -1..1 at 16 kHz: vowels (a buzzing source through three resonances) between pauses of faint noise."""
    random = np.random.default_rng(5)
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = 120 + 25 * np.sin(2 * np.pi * 1.7 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    vowels = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480))  # Peterson and Barney, 1952
    sound = np.zeros_like(time)
    for harmonic in range(1, 30):
        frequency = harmonic * pitch
        formants = np.array(vowels)[(time / 0.22).astype(int) % 4]
        gain = sum(1 / (1 + ((frequency - formants[:, i]) / (60 + 30 * i)) ** 2) for i in range(3))
        sound += gain * np.sin(harmonic * phase) / harmonic**0.5
    spoken = np.clip(np.sin(2 * np.pi * 0.9 * time) * 3 + 1, 0, 1)  # words and pauses
    sound = 0.3 * sound / np.abs(sound).max() * spoken + random.normal(0, 0.002, time.shape)
    return sound.astype(np.float32)


def file_bytes() -> NDArray[np.int32]:
    """[1, 2048]: the first and last 1024 bytes of a Python source file as magika takes them, 256 where there is none."""
    content = Path(__file__).read_bytes().strip()
    values = np.full((1, 2048), 256, np.int32)
    values[0, :1024] = list(content[:1024])
    values[0, 1024:] = list(content[-1024:])
    return values


def sentences(length: int, vocabulary: int = 30522) -> dict[str, NDArray[np.int64]]:
    """Token numbers, mask and segments [2, length]; the second sentence is shorter, so that its mask matters."""
    random = np.random.default_rng(17)
    tokens = random.integers(1000, vocabulary, (2, length))
    mask = np.ones((2, length), np.int64)
    mask[1, length * 3 // 4 :] = 0
    tokens[:, 0] = 101
    return {"input_ids": tokens * mask, "attention_mask": mask, "token_type_ids": np.zeros((2, length), np.int64)}
