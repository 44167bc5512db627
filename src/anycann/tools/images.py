"""A picture in a file -> the array a model takes: size, channel order, scale, layout."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.support.errors import UsageError
from anycann.support.records import dataclass

Layout: TypeAlias = Literal["NCHW", "NHWC"]
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class ImageOptions:
    """How a picture becomes a tensor. `size` is (height, width), None for the model's own, or the picture's where that is open.

    Pixels are 0..255; `(pixel - mean) / std` follows, with one number or one for each channel. `layout` None is guessed from the shape.
    """

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: Layout | None = None
    bgr: bool = False


def load_image(path: str, spec: TensorSpec, options: ImageOptions) -> np.ndarray[Any, np.dtype[Any]]:
    """The picture as an array of `spec`'s dtype with shape [1, C, H, W] or [1, H, W, C].

    Raises UsageError for a file that is no picture, an input that is no image, or a mean or std of another length than the channels.
    """
    layout = options.layout or guess_layout(spec)
    channels, height, width = _sizes(spec, layout)
    pixels = _read(path, channels or 3, options.size or _known_size(height, width))
    if options.bgr and pixels.shape[2] >= 3:
        pixels = pixels[:, :, [2, 1, 0, *range(3, pixels.shape[2])]]
    scaled = (pixels - _per_channel("mean", options.mean, pixels)) / _per_channel("std", options.std, pixels)
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        scaled = np.clip(np.rint(scaled), limits.min, limits.max)
    ordered = scaled.transpose(2, 0, 1) if layout == "NCHW" else scaled
    return np.ascontiguousarray(ordered[np.newaxis], dtype=dtype)


def guess_layout(spec: TensorSpec) -> Layout:
    """The layout whose channel axis looks more like one: 3 entries before 1, 1 before 4, anything else last; NCHW where both look the same.

    Raises UsageError unless the input has four axes.
    """
    if len(spec.shape) != 4:
        raise UsageError(f"input {spec.name} has shape {list(spec.shape)}: an image needs an input of four axes; give an .npy file instead")
    doubt = {3: 0, 1: 1, 4: 2}
    first, last = (doubt.get(size, 3) if isinstance(size, int) else 3 for size in (spec.shape[1], spec.shape[3]))
    return "NHWC" if last < first else "NCHW"


def _sizes(spec: TensorSpec, layout: Layout) -> tuple[int | None, int | None, int | None]:
    """(channels, height, width), None where open. Raises UsageError unless four axes with 1, 3 or 4 channels and a batch of one."""
    guess_layout(spec)
    batch, *rest = (size if isinstance(size, int) else None for size in spec.shape)
    channels, height, width = rest if layout == "NCHW" else (rest[2], rest[0], rest[1])
    if channels is not None and channels not in _MODES:
        raise UsageError(f"input {spec.name} has {channels} channels in layout {layout}: accepted are 1, 3 or 4")
    if batch not in (None, 1):
        raise UsageError(f"input {spec.name} takes {batch} images at once: put them into one .npy file")
    return channels, height, width


def _known_size(height: int | None, width: int | None) -> tuple[int, int] | None:
    return (height, width) if height and width else None


def _read(path: str, channels: int, size: tuple[int, int] | None) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Pixels as float32 [H, W, channels], resized with bilinear filtering."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UsageError(f"reading {path} needs the package pillow, which is not installed; an .npy file needs nothing") from None
    try:
        with Image.open(path) as opened:
            picture = opened.convert(_MODES[channels])
    except FileNotFoundError:
        raise UsageError(f"the image {path} does not exist") from None
    except (UnidentifiedImageError, OSError) as error:
        raise UsageError(f"the image {path} can not be read: {error}") from None
    if size and (picture.height, picture.width) != size:
        picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(picture, dtype=np.float32).reshape(picture.height, picture.width, channels)


def _per_channel(name: str, numbers: tuple[float, ...], pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    if len(numbers) not in (1, pixels.shape[2]):
        raise UsageError(f"--{name} has {len(numbers)} numbers: accepted is one, or one for each of the {pixels.shape[2]} channels")
    if name == "std" and 0.0 in numbers:
        raise UsageError("--std must not contain 0")
    return np.asarray(numbers, dtype=np.float32)
