"""Any function of one byte, as the table of what it makes of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import integers
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

BYTE_TABLE = "ByteTable"


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    source, table = inputs
    assert source is not None
    assert table is not None
    return [TensorType(table.dtype, source.shape)]


def _reference(source: np.ndarray, table: np.ndarray) -> np.ndarray:
    return table[source.view(np.uint8)]


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for dtype, made in (("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")):
        for shape in ((3, 17), (2, 5, 4, 3), (300,), (0, 4)):
            limits = np.iinfo(dtype)
            table = rng.integers(np.iinfo(made).min, np.iinfo(made).max, 256, endpoint=True).astype(made)
            yield Sample((integers(rng, *shape, low=limits.min, high=limits.max, dtype=dtype), table), constant=(1,))


@operator(BYTE_TABLE, domain=DOMAIN, samples=_samples, infer=_infer, reference=_reference)
def byte_table(context: Lowering) -> Tensor:
    """table[x]: the entries of a known table of 256 bytes, numbered by the bits of x as an unsigned byte."""
    source, table = context.operand(0), context.constant(1)
    if source.dtype not in (dtypes.uint8, dtypes.int8) or table is None or table.size != 256 or table.dtype.itemsize != 1:
        raise NotLowered("it takes bytes, and a table of 256 bytes")
    content, dtype = table.tobytes(), context.outputs[0].dtype

    def element(*index: Expr) -> Expr:
        return x.lookup(x.bitcast(source[index], dtypes.uint8), content, dtype)

    return te.compute(source.shape, element)
