"""What Ascend's AIPP unit makes of a picture on its way into a network, as one operator: one pass, which joins what reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
import onnx_ir as ir

from anycann.graph.ops.common import guarded, inside, integers
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

YUV = "YUV420SP_U8"


def picture_rows(input_format: str, rows: int) -> int:
    """Rows of pixels of a tensor with so many rows: the colours of YUV420SP lie behind the brightness, half as many rows."""
    return rows * 2 // 3 if input_format == YUV else rows


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    (picture,) = inputs
    assert picture is not None
    get = node.attributes.get_int
    rows, columns = picture_rows(node.attributes["input_format"].as_string(), picture.shape[1]), picture.shape[2]
    crop = node.attributes["crop"].as_ints() if "crop" in node.attributes else ()
    top, left, bottom, right = node.attributes["pads"].as_ints() if "pads" in node.attributes else (0, 0, 0, 0)
    high, wide = (crop[2], crop[3]) if crop else (rows, columns)
    return [TensorType(dtypes.float32, (picture.shape[0], get("channels", 3), high + top + bottom, wide + left + right))]


def aipp_by_numpy(
    picture: NDArray[np.uint8],
    input_format: str = "",
    channels: int = 3,
    order: Sequence[int] = (0, 1, 2),
    crop: Sequence[int] = (),
    matrix: Sequence[float] = (),
    input_bias: Sequence[float] = (0, 0, 0),
    output_bias: Sequence[float] = (0, 0, 0),
    subtracted: Sequence[float] = (),
    factors: Sequence[float] = (),
    pads: Sequence[int] = (0, 0, 0, 0),
    padding: float = 0.0,
) -> NDArray[np.float32]:
    """What the attributes of `Aipp` say, step by step."""
    pixels = _pixels(picture, input_format).astype(np.float32)[..., list(order)]
    if crop:
        pixels = pixels[:, crop[0] : crop[0] + crop[2], crop[1] : crop[1] + crop[3]]
    if len(matrix):
        mixed = (pixels[..., :3] - np.array(input_bias, np.float32)) @ np.array(matrix, np.float32).reshape(3, 3).T
        pixels = np.clip(np.floor(mixed / 256) + np.array(output_bias, np.float32), 0, 255)
    pixels = pixels[..., :channels] - np.array(subtracted or [0] * channels, np.float32)
    pixels = pixels * np.array(factors or [1] * channels, np.float32)
    top, left, bottom, right = pads
    padded = np.pad(pixels, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=padding)
    return np.ascontiguousarray(padded.transpose(0, 3, 1, 2))


def _pixels(picture: NDArray[np.uint8], input_format: str) -> NDArray[np.uint8]:
    """[N, rows, columns, samples]."""
    if input_format != YUV:
        return picture.reshape(*picture.shape[:3], -1)
    rows = picture_rows(input_format, picture.shape[1])
    colours = picture[:, rows:].reshape(picture.shape[0], rows // 2, -1, 2).repeat(2, 1).repeat(2, 2)
    return np.concatenate([picture[:, :rows, :, None], colours], -1)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    def one(*shape: int, **attributes: object) -> Sample:
        return Sample((integers(rng, *shape, low=0, high=255, dtype="uint8"),), attributes)

    colours = {"matrix": [298.0, 0.0, 409.0, 298.0, -100.0, -208.0, 298.0, 516.0, 0.0], "input_bias": [16.0, 128.0, 128.0]}
    scaled = {"subtracted": [104.0, 117.5, 123.0], "factors": [0.5, 1.0, 0.25]}
    yield one(2, 12, 10, input_format=YUV, order=[0, 1, 2], **colours, **scaled)
    yield one(1, 24, 46, input_format=YUV, order=[0, 2, 1], crop=[2, 4, 9, 37], pads=[1, 3, 0, 2], padding=7.0, **colours)
    yield one(1, 6, 34, input_format=YUV, order=[0, 1, 2], **scaled)
    yield one(1, 9, 43, 3, input_format="RGB888_U8", order=[2, 1, 0], crop=[1, 3, 5, 33], pads=[0, 1, 2, 0], **scaled)
    yield one(2, 4, 6, 4, input_format="XRGB8888_U8", order=[1, 2, 3, 0], channels=4)
    back = {"matrix": [66.0, 129.0, 25.0, -38.0, -74.0, 112.0, 112.0, -94.0, -18.0], "output_bias": [16.0, 128.0, 128.0]}
    yield one(1, 5, 20, 3, input_format="RGB888_U8", order=[0, 1, 2], **back)
    yield one(1, 5, 20, 3, input_format="RGB888_U8", order=[0, 1, 2], channels=1, **back)
    yield one(3, 5, 7, input_format="YUV400_U8", order=[0], channels=1, subtracted=[3.0])


@operator("Aipp", domain=DOMAIN, samples=_samples, infer=_infer, reference=aipp_by_numpy)
def aipp(context: Lowering) -> Tensor:
    """uint8 pixels -> samples in `order` -> `crop` (top, left, rows, columns) -> floor(`matrix` . (samples - `input_bias`) / 256) +
    `output_bias`, limited to 0 and 255 -> (x - `subtracted`) * `factors` -> `pads` (top, left, bottom, right) of `padding`.

    Picture: YUV420SP_U8 [N, rows * 3 / 2, columns], RGB888_U8 and XRGB8888_U8 [N, rows, columns, 3 or 4], YUV400_U8 [N, rows, columns].
    Result: float32 [N, channels, rows, columns].
    """
    source, shape = context.operand(0), context.outputs[0].shape
    if source.dtype is not dtypes.uint8:
        raise NotLowered(f"a picture of {source.dtype}")
    unit = _Unit(context, source)
    top, left, bottom, right = context.integers("pads") or (0, 0, 0, 0)
    crop = context.integers("crop") or (0, 0)
    high, wide = shape[2] - top - bottom, shape[3] - left - right

    def element(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        y, column = h - top, w - left
        present = [condition for condition in (inside(y, high), inside(column, wide)) if condition is not None]
        value = unit.value(n, c, y + crop[0], column + crop[1])
        return guarded(x.all_of(present), value, context.number("padding"))

    return te.compute(shape, element)


class _Unit:
    """Values of a picture."""

    def __init__(self, context: Lowering, source: Tensor):
        self.source, self._context = source, context
        self.format, self.order = context.text("input_format"), context.integers("order") or (0, 1, 2)

    def value(self, n: Expr, c: Expr, y: Expr, column: Expr) -> Expr:
        """Channel `c` of the pixel, as a network takes it."""
        matrix = self._numbers("matrix")
        value = self._sample(n, c, y, column) if matrix is None else self._converted(matrix.reshape(3, 3), n, c, y, column)
        subtracted, factors = self._numbers("subtracted"), self._numbers("factors")
        value = value if subtracted is None else value - te.table(subtracted)[c]
        return value if factors is None else value * te.table(factors)[c]

    def _numbers(self, name: str) -> NDArray[np.float32] | None:
        given = self._context.attribute(name)
        return None if given is None else np.array(given, np.float32)

    def _samples(self, n: Expr, y: Expr, column: Expr) -> list[Expr]:
        """Three samples of a pixel, in order."""
        if self.format != YUV:
            return [self._float(self.source[n, y, column, place]) for place in self.order[:3]]
        found = [self.source[n, y, column], *self._colours(n, y, column)]
        return [self._float(found[place]) for place in self.order]

    def _colours(self, n: Expr, y: Expr, column: Expr) -> list[Expr]:
        """The pair that two by two pixels share, by reads of neighbours: those of a vector of pixels lie one behind the other."""
        rows = picture_rows(self.format, self.source.shape[1])
        row = y // 2 + rows
        even = x.equal(column % 2, 0)
        here, before, behind = (self.source[n, row, column + step] for step in (0, -1, 1))
        return [x.select(even, here, before), x.select(even, behind, here)]

    def _sample(self, n: Expr, c: Expr, y: Expr, column: Expr) -> Expr:
        """One sample, the one in place `c`."""
        if self.format == "YUV400_U8":
            return self._float(self.source[n, y, column])
        if self.format != YUV:
            return self._float(self.source[n, y, column, te.table(np.array(self.order, np.int64))[c]])
        one, two, three = self._samples(n, y, column)
        return x.select(x.equal(c, 0), one, x.select(x.equal(c, 1), two, three))

    def _converted(self, matrix: NDArray[np.float32], n: Expr, c: Expr, y: Expr, column: Expr) -> Expr:
        samples, bias = self._samples(n, y, column), self._numbers("input_bias")
        if bias is not None:
            samples = [sample - float(number) for sample, number in zip(samples, bias, strict=True)]
        weights = te.table(matrix)
        first, second, third = (sample * weights[c, place] for place, sample in enumerate(samples))
        value = x.unary("floor", (first + second + third) * (1 / 256))
        added = self._numbers("output_bias")
        return x.clamp(value if added is None else value + te.table(added)[c], 0.0, 255.0)

    @staticmethod
    def _float(sample: Expr) -> Expr:
        return x.cast(sample, dtypes.float32)
