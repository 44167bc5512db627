"""Options that `infer` and `bench` share: the model's file, its inputs and how files become arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

from anycann.om.plan import TensorSpec
from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tools.atc_shapes import Shape, parse_input_shape
from anycann.tools.feeds import Array, load_feeds, random_feeds
from anycann.tools.images import ImageOptions, Layout

T = TypeVar("T")
model_argument = click.argument("model", type=click.Path(exists=True, dir_okay=False))
threads_option = click.option("--threads", type=click.IntRange(1), help="Threads to run with; default: one for each processor.")


@dataclass(frozen=True)
class GivenInputs:
    """The inputs on the command line. `shapes` are sizes that the model leaves open, by input name."""

    words: tuple[str, ...]
    shapes: dict[str, Shape]
    dtype: str
    image: ImageOptions

    def feeds(self, specs: Sequence[TensorSpec]) -> dict[str, Array]:
        """The arrays for a model with these inputs. Raises UsageError where they do not fit."""
        return load_feeds(self.words, specs, self.image, self.shapes, self.dtype)

    def feeds_or_random(self, specs: Sequence[TensorSpec]) -> dict[str, Array]:
        """The same; random numbers if no input was given."""
        return self.feeds(specs) if self.words else random_feeds(specs, self.shapes)


_OPTIONS = (
    click.option("--input", "-i", "inputs", multiple=True, metavar="[NAME=]FILE", help=".npy, .npz, .bin, .txt or an image; repeatable."),
    click.option("--shape", default="", help='Sizes of inputs the model leaves open: "images:1,3,640,640;mask:1,640".'),
    click.option("--dtype", default="", help="Element type of a .bin file, where it is not the model's."),
    click.option("--resize", default="", metavar="HxW", help="Size of images; default: the model's, or the image's where that is open."),
    click.option("--mean", default="0", metavar="N[,N,N]", help="Subtracted from pixels of 0..255.", show_default=True),
    click.option("--std", default="1", metavar="N[,N,N]", help="What pixels are divided by then.", show_default=True),
    click.option("--layout", type=click.Choice(("NCHW", "NHWC")), help="Axes of an image input; default: by its channels."),
    click.option("--rgb/--bgr", "rgb", default=True, help="Order of the channels.", show_default=True),
)


def input_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--input` and its companions; the command gets them as one argument `given`."""

    @wraps(command)
    def gathered(
        *,
        inputs: tuple[str, ...],
        shape: str,
        dtype: str,
        resize: str,
        mean: str,
        std: str,
        layout: Layout | None,
        rgb: bool,
        **rest: Any,
    ) -> T:
        image = ImageOptions(_size(resize), _numbers("mean", mean), _numbers("std", std), layout, not rgb)
        return command(given=GivenInputs(inputs, parse_input_shape(shape), dtype, image), **rest)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


def _size(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise UsageError(f"--resize is {text!r}; accepted: HEIGHTxWIDTH, for example 224x224")
    return int(height), int(width)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--{name} is {text!r}; accepted: one number, or one for each channel with commas between") from None
