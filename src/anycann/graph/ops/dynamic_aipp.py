"""Dynamic AIPP as one operator: pictures, and a table that says while a model runs what they are and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
import onnx_ir as ir

from anycann.graph.ops.aipp import aipp_by_numpy
from anycann.graph.ops.common import integers
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Picture
from anycann.te.picture_table import PIXEL_BYTES, WORDS, Format, Word
from anycann.te.tensor import Placeholder, Tensor


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    table, size = inputs[1], node.inputs[2]
    assert table is not None
    assert size is not None
    if size.const_value is None:
        return []
    return [TensorType(dtypes.float32, (table.shape[0], node.attributes.get_int("channels", 3), *size.const_value.numpy().tolist()))]


def _by_numpy(source: NDArray[np.uint8], table: NDArray[np.int32], size: NDArray[np.int64], channels: int = 3) -> NDArray[np.float32]:
    return np.concatenate([_one(source, row, channels, *size.tolist()) for row in table])


def _one(source: NDArray[np.uint8], row: NDArray[np.int32], channels: int, height: int, width: int) -> NDArray[np.float32]:
    """One picture, by the operator whose settings are attributes."""
    fractions, form = row.view(np.float32), Format(row[Word.FORMAT])
    above, before, rows, columns = (int(row[word]) for word in (Word.ABOVE, Word.BEFORE, Word.ROWS, Word.COLUMNS))
    stride, last = int(row[Word.STRIDE]), int(row[Word.FIRST_ROW]) + rows
    shape = (1, last, stride // PIXEL_BYTES[form], *([PIXEL_BYTES[form]] if PIXEL_BYTES[form] > 1 else []))
    source = source[int(row[Word.OFFSET : Word.OFFSET + 2].view(np.int64)[0]) :]
    pixels = source[: last * stride].reshape(shape)
    if form is Format.YUV420SP_U8:
        pixels = np.pad(pixels, ((0, 0), (0, last % 2), (0, 0)))
        pairs = source[row[Word.COLOURS] : row[Word.COLOURS] + (last + 1) // 2 * stride].reshape(1, -1, stride)
        pixels = np.concatenate([pixels, pairs], 1)
    made: dict[str, NDArray[np.float32]] = {}
    if row[Word.CONVERTS]:
        made = {"matrix": fractions[Word.MATRIX : Word.MATRIX + 9], "input_bias": fractions[Word.INPUT_BIAS : Word.INPUT_BIAS + 3],
                "output_bias": fractions[Word.OUTPUT_BIAS : Word.OUTPUT_BIAS + 3]}  # fmt: skip
    samples = {Format.YUV400_U8: 1, Format.XRGB8888_U8: 4}.get(form, 3)
    return aipp_by_numpy(
        pixels,
        form.name,
        channels,
        order=row[Word.ORDER : Word.ORDER + samples].tolist(),
        crop=(int(row[Word.FIRST_ROW]), int(row[Word.FIRST_COLUMN]), rows, columns),
        subtracted=fractions[Word.SUBTRACTED : Word.SUBTRACTED + channels].tolist(),
        factors=fractions[Word.FACTORS : Word.FACTORS + channels].tolist(),
        pads=(above, before, height - above - rows, width - before - columns),
        padding=float(fractions[Word.PADDING]),
        **made,  # type: ignore[arg-type]
    )


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    def row(
        form: Format, offset: int, rows: int, columns: int, *frame: int, order: Sequence[int] = (0, 1, 2, 3), converts: int = 0
    ) -> list[int]:
        """A picture of rows x columns; frame: first row and column, rows, columns, above, before."""
        whole, stride = np.zeros(WORDS, np.int32), columns * PIXEL_BYTES[form]
        whole[: Word.ORDER] = [form, stride, offset, 0, rows * stride, *(frame or (0, 0, rows, columns, 0, 0))]
        whole[Word.ORDER : Word.ORDER + 4], whole[Word.CONVERTS] = order, converts
        fractions = whole.view(np.float32)
        fractions[Word.MATRIX : Word.SUBTRACTED] = [298, 0, 409, 298, -100, -208, 298, 516, 0, 16, 128, 128, 3, 0, 1]
        fractions[Word.SUBTRACTED : Word.PADDING + 1] = [104, 117.5, 0, 3, 0.5, 1, 0.25, 2, -7]
        return whole.tolist()

    def one(nbytes: int, channels: int, height: int, width: int, *rows: list[int]) -> Sample:
        pictures = integers(rng, nbytes, low=0, high=255, dtype="uint8")
        return Sample((pictures, np.array(rows, np.int32), np.array([height, width])), {"channels": channels}, (2,))

    yuv, xrgb, rgb, grey = Format
    yield one(2 * 10 * 38 * 3 // 2, 3, 10, 38, row(yuv, 0, 10, 38, converts=1), row(yuv, 570, 10, 38, order=(0, 2, 1, 3)))
    yield one(24 * 46 * 3 // 2, 3, 12, 43, row(yuv, 0, 24, 46, 2, 4, 9, 37, 1, 3, converts=1))
    yield one(
        2 * 9 * 43 * 3,
        3,
        8,
        35,
        row(rgb, 0, 9, 43, 1, 3, 5, 33, 0, 2, order=(2, 1, 0, 3)),
        row(rgb, 1161, 9, 43, 0, 5, 8, 35, 0, 0, converts=1),
    )
    yield one(4 * 6 * 4, 4, 4, 6, row(xrgb, 0, 4, 6, order=(1, 2, 3, 0)))
    yield one(5 * 33, 1, 7, 33, row(grey, 0, 5, 33, 0, 0, 5, 33, 1, 0))
    yield one(5 * 20 * 3, 1, 5, 20, row(rgb, 0, 5, 20, converts=1))


@operator("DynamicAipp", domain=DOMAIN, samples=_samples, infer=_infer, reference=_by_numpy)
def dynamic_aipp(context: Lowering) -> Tensor:
    """Operands pictures (uint8, [bytes]), table (int32, [N, WORDS], te/picture_table.py), and height and width (int64, [2]), which are
    known when a program is compiled; float32 [N, channels, height, width]."""
    source, table = context.operand(0), context.operand(1)
    if source.dtype is not dtypes.uint8 or table.dtype is not dtypes.int32 or source.rank != 1 or table.shape[1:] != (WORDS,):
        raise NotLowered(f"pictures {source.dtype}{list(source.shape)} with a table {table.dtype}{list(table.shape)}")
    if not isinstance(source, Placeholder) or not isinstance(table, Placeholder) or context.integer("channels") > 4:
        raise NotLowered("pictures or a table that are known, or more than four channels")
    result = te.contraction(Picture(source, table), context.outputs[0].shape, dtypes.float32)
    return te.compute(result.shape, lambda *index: result[index])
