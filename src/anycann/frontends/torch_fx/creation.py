"""Tensors made from nothing: filled, counted, diagonal."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import LARGEST_CONSTANT, Builder, numpy_dtype
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation


@translation("full.default", "full_like.default", "new_full.default")
def _full(b: Builder, call: Call) -> ir.Value:
    return b.full(call.fill_value, call.result.shape, call.result.dtype)


@translation("zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default", "new_empty.default")
def _zeros(b: Builder, call: Call) -> ir.Value:
    return b.full(0, call.result.shape, call.result.dtype)


@translation("ones.default", "ones_like.default", "new_ones.default")
def _ones(b: Builder, call: Call) -> ir.Value:
    return b.full(1, call.result.shape, call.result.dtype)


@translation("scalar_tensor.default")
def _scalar(b: Builder, call: Call) -> ir.Value:
    return b.scalar(call.s, call.result.dtype)


def _counted(b: Builder, start: float, step: float, dtype: torch.dtype, count: int) -> ir.Value:
    if count > LARGEST_CONSTANT:
        raise NotTranslated(f"{count} numbers in a row")
    wide = np.int64 if isinstance(start, int) and isinstance(step, int) else np.float64
    return b.array((np.array(start) + np.array(step) * np.arange(count, dtype=wide)).astype(numpy_dtype(dtype)))


@translation("arange.default")
def _arange(b: Builder, call: Call) -> ir.Value:
    return _counted(b, 0, 1, call.result.dtype, int(call.result.shape[0]))


@translation("arange.start")
def _arange_from(b: Builder, call: Call) -> ir.Value:
    return _counted(b, call.start, 1, call.result.dtype, int(call.result.shape[0]))


@translation("arange.start_step", "prims.iota.default")
def _arange_by(b: Builder, call: Call) -> ir.Value:
    return _counted(b, call.start, call.step, call.result.dtype, int(call.result.shape[0]))


@translation("eye.default", "eye.m")
def _eye(b: Builder, call: Call) -> ir.Value:
    rows, columns = (int(size) for size in call.result.shape)
    if rows * columns > LARGEST_CONSTANT:
        raise NotTranslated(f"a unit matrix of {rows} x {columns}")
    return b.array(np.eye(rows, columns).astype(numpy_dtype(call.result.dtype)))
