"""Rotary embeddings, slices, transposes, scatters and dropout, place by place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _turned(x: Array, mode: str) -> Array:
    out, half = np.empty_like(x), x.shape[-1] // 2
    for d in range(x.shape[-1]):
        if mode == "half":
            out[..., d] = -x[..., d + half] if d < half else x[..., d - half]
        else:
            out[..., d] = -x[..., d + 1] if d % 2 == 0 else x[..., d - 1]
    return out


def _rotary(x: Array, r1: Array, r2: Array, rotary_mode: str = "half", rotate: Array | None = None) -> Array:
    return x * r1 + (_turned(x, rotary_mode) if rotate is None else x @ rotate) * r2


def _rotary_backward(above: Array, x: Array, r1: Array, r2: Array, rotary_mode: str = "half") -> Any:
    by_x = np.zeros_like(x)
    matrix = np.stack([_turned(row, rotary_mode) for row in np.eye(x.shape[-1])])  # rotation of unit vectors: x @ matrix
    by_x = above * r1 + (above * r2) @ matrix.T
    axes = tuple(i for i in range(x.ndim) if r1.shape[i] == 1 and x.shape[i] > 1)
    return by_x, (above * x).sum(axes, keepdims=True), (above * _turned(x, rotary_mode)).sum(axes, keepdims=True)


for _mode in ("half", "interleave"):
    case("npu_rotary_mul", randn(2, 3, 4, 8), randn(1, 3, 1, 8), randn(1, 3, 1, 8), _mode, reference=_rotary, differentiable=True)
    case(
        "npu_rotary_mul_backward",
        randn(2, 3, 4, 8),
        randn(2, 3, 4, 8),
        randn(1, 3, 1, 8),
        randn(1, 3, 1, 8),
        _mode,
        reference=_rotary_backward,
    )
case("npu_rotary_mul", randn(2, 3, 8), randn(2, 1, 8), randn(2, 1, 8), "half", randn(8, 8), reference=_rotary)


def _apply(query: Array, key: Array, cos: Array, sin: Array, layout: str = "BSND", rotary_mode: str = "half") -> Any:
    width = cos.shape[-1]
    return [np.concatenate((_rotary(x[..., :width], cos, sin, rotary_mode), x[..., width:]), -1) for x in (query, key)]


case("npu_apply_rotary_pos_emb", randn(2, 3, 4, 8), randn(2, 3, 1, 8), randn(2, 3, 1, 8), randn(2, 3, 1, 8), reference=_apply)
case("npu_apply_rotary_pos_emb", randn(6, 4, 8), randn(6, 1, 8), randn(6, 1, 4), randn(6, 1, 4), "TND", "interleave", reference=_apply)
case(
    "npu_interleave_rope",
    randn(2, 3, 4, 8),
    randn(2, 1, 4, 8),
    randn(2, 1, 4, 8),
    reference=lambda x, cos, sin: _rotary(np.concatenate((x[..., ::2], x[..., 1::2]), -1), cos, sin),
)


def _heads(x: Array, cos: Array, sin: Array, size: int, mode: str) -> Array:
    heads = x.reshape(x.shape[0], -1, size)
    doubled = [np.concatenate((a, a), -1) if mode == "half" else np.repeat(a, 2, -1) for a in (cos[:, None], sin[:, None])]
    width = doubled[0].shape[-1]
    return np.concatenate((_rotary(heads[..., :width], *doubled, mode), heads[..., width:]), -1).reshape(x.shape)


def _mrope(
    positions: Array, query: Array, key: Array, cache: Array, size: int, mrope_section: Any = None, rotary_mode: str = "half"
) -> Any:
    cos, sin = np.split(cache[positions], 2, -1)
    if positions.ndim == 2:
        owner = np.repeat(np.arange(len(mrope_section)), mrope_section)
        cos, sin = (np.stack([a[owner[i], :, i] for i in range(a.shape[-1])], -1) for a in (cos, sin))
    return _heads(query, cos, sin, size, rotary_mode), _heads(key, cos, sin, size, rotary_mode)


_P = torch.tensor([4, 0, 2])
case("npu_mrope", _P, randn(3, 16), randn(3, 8), randn(6, 8), 8, reference=_mrope)
case("npu_mrope", _P, randn(3, 16), randn(3, 8), randn(6, 6), 8, options={"rotary_mode": "interleave"}, reference=_mrope)
case(
    "npu_mrope",
    torch.stack([_P, _P + 1, _P + 3]),
    randn(3, 16),
    randn(3, 8),
    randn(9, 8),
    8,
    options={"mrope_section": [2, 1, 1]},
    reference=_mrope,
)
case(
    "_npu_rotary_embedding",
    _P,
    randn(3, 16),
    randn(3, 8),
    8,
    randn(6, 8),
    True,
    reference=lambda p, q, k, size, cache, neox: (None, *_mrope(p, q, k, cache, size)),
    written=(1, 2),
)


# slices and transposes


def _confused(x: Array, perm: Any, shape: Any, first: bool) -> Array:
    return x.transpose(perm).reshape(shape) if first else x.reshape(shape).transpose(perm)


case("npu_confusion_transpose", randn(2, 3, 4), [1, 0, 2], [3, 8], True, reference=_confused, differentiable=True)
case("npu_confusion_transpose", randn(2, 12), [0, 2, 1, 3], [2, 2, 3, 2], False, reference=_confused, differentiable=True)
_OUT = {"out": torch.empty(4, 2, 3)}
for _suffix, _extra in (("", {}), (".out", _OUT)):
    _x = randn(2, 3, 4)
    case(
        f"npu_transpose{_suffix}",
        _x,
        [2, 0, 1],
        options=_extra,
        reference=lambda x, perm, **_: x.transpose(perm),
        differentiable=not _extra,
    )
    case(
        f"npu_reshape{_suffix}", _x, [4, 2, 3], options=_extra, reference=lambda x, shape, **_: x.reshape(shape), differentiable=not _extra
    )
    case(
        f"npu_broadcast{_suffix}",
        randn(2, 1),
        [4, 2, 3],
        options=_extra,
        reference=lambda x, shape, **_: np.broadcast_to(x, shape),
        differentiable=not _extra,
    )
    case(
        f"npu_slice{_suffix}",
        randn(5, 4, 3),
        [1, 2, 0],
        [4, 2, -1],
        options=_extra,
        reference=lambda x, b, s, **_: x[1:5, 2:4],
        differentiable=not _extra,
    )
    case(f"npu_sort_v2{_suffix}", randn(4, 2, 3), options=_extra, reference=lambda x, **_: np.sort(x, -1), differentiable=not _extra)
    case(
        f"npu_stride_copy{_suffix}",
        randn(30),
        [4, 2, 3],
        [6, 1, 2],
        1,
        options=_extra,
        reference=lambda x, shape, stride, offset, **_: np.array(
            [[[x[offset + 6 * i + j + 2 * k] for k in range(3)] for j in range(2)] for i in range(4)]
        ),
        differentiable=not _extra,
    )
    case(
        f"npu_indexing{_suffix}",
        randn(4, 3, 3),
        [0, 0, 0],
        [4, 2, 3],
        [1, 1, 1],
        options=_extra,
        reference=lambda x, *_, **__: x[:, :2],
        differentiable=not _extra,
    )
case("npu_sort_v2", randn(3, 4), 0, True, reference=lambda x, dim, down: -np.sort(-x, dim))
case("npu_indexing", randn(6, 7), [5, 2], [0, 6], [-2, 3], reference=lambda x, *_: x[5:0:-2, 2:6:3])
case("npu_indexing", randn(6, 7), [1, 2], [3, 4], [1, 1], 1, 2, reference=lambda x, *_: x[:3, 2:])
case("npu_indexing", randn(4, 5, 6, 7), [1, 0, 2], [3, 0, 4], [1, 1, 1], 0, 0, 2, reference=lambda x, *_: x[1:3, ..., 2:4])
case("npu_indexing", randn(4, 5), [0, 1, 2], [0, 3, 0], [1, 1, 1], 0, 0, 0, 1, 4, reference=lambda x, *_: x[None, 1:3, 2])
case("npu_pad", randn(2, 3), [1, 0, 2, 1], reference=lambda x, p: np.pad(x, [(1, 0), (2, 1)]), differentiable=True)
case("npu_pad", torch.ones(2, 2), [1, 1, 1, 1], reference=lambda x, p: np.pad(x, 1))
case(
    "npu_one_hot",
    torch.tensor([[0, 2], [1, 5]]),
    -1,
    4,
    3,
    -1,
    reference=lambda x, n, depth, on, off: np.where(x[..., None] == np.arange(depth), float(on), float(off)),
)
case("npu_max.dim", randn(3, 4), 1, reference=lambda x, dim: (x.max(dim), x.argmax(dim).astype(np.int32)), differentiable=True)
case(
    "npu_min.dim",
    randn(3, 4),
    0,
    True,
    reference=lambda x, dim, keep: (x.min(dim, keepdims=True), x.argmin(dim)[None].astype(np.int32)),
    differentiable=True,
)


def _blocks(a: Array, b: Array, first: int, second: int, count: int) -> Array:
    out = np.zeros((a.shape[0], count * 16, *a.shape[2:]))
    for x, offset in ((a, first), (b, second)):
        for c in range(count * 16):
            if offset * 16 + c < x.shape[1]:
                out[:, c] += x[:, offset * 16 + c]
    return out


case("npu_stride_add", torch.ones(1, 1, 1, 1, 1), torch.ones(1, 1, 1, 1, 1), 0, 0, 1, reference=_blocks)
case("npu_stride_add", randn(2, 48, 3), randn(2, 40, 3), 0, 1, 2, reference=_blocks, differentiable=True)
case("one_", randn(2, 3), reference=lambda x: (np.ones_like(x), np.ones_like(x)), written=(0,))
case("reverse", randn(2, 3, 4), [0, 2], reference=lambda x, axis: x[::-1, :, ::-1], differentiable=True)
case(
    "npu_sign_bits_pack",
    torch.cat((randn(17), torch.zeros(1))),
    1,
    reference=lambda x, size: np.packbits(x >= 0, bitorder="little").reshape(size, -1),
)
case("npu_sign_bits_pack", randn(32), 2, reference=lambda x, size: np.packbits(x >= 0, bitorder="little").reshape(size, -1))
case(
    "npu_sign_bits_unpack",
    torch.randint(0, 256, (6,), dtype=torch.uint8),
    2,
    torch.float32,
    reference=lambda x, size, dtype: (np.unpackbits(x, bitorder="little").astype(float) * 2 - 1).reshape(size, -1),
)


# scatters


def _nd(x: Array, indices: Array, updates: Array) -> Array:
    for place in np.ndindex(indices.shape[:-1]):
        x[tuple(indices[place])] = updates[place]
    return x


_INDICES = torch.tensor([[0, 2], [3, 1], [1, 4]])
case("npu_scatter_nd_update", randn(4, 5, 6), _INDICES, randn(3, 6), reference=_nd, differentiable=True)
case("npu_scatter_nd_update_", randn(4, 5, 6), _INDICES, randn(3, 6), reference=lambda x, i, u: (_nd(x, i, u), x), written=(0,))
case("npu_scatter_nd_update", torch.randint(0, 9, (5,)), torch.tensor([[4], [0]]), torch.tensor([7, 8]), reference=_nd)


def _update(x: Array, indices: Array, updates: Array, axis: int) -> Array:
    moved = np.moveaxis(x, axis, 1)
    for entry, index in enumerate(indices):
        row, first = (entry, index) if indices.ndim == 1 else index
        part = np.moveaxis(updates, axis, 1)[entry]
        moved[row, first : first + part.shape[0]] = part
    return x


# the documented example
case("scatter_update", torch.tensor([[[[1.0] * 8, [2.0] * 8]]]), torch.tensor([1]), torch.full((1, 1, 1, 8), 3.0), -2, reference=_update)
case("scatter_update", randn(4, 3, 6, 2), torch.tensor([1, 3]), randn(2, 3, 2, 2), 2, reference=_update)
case("scatter_update", randn(4, 3, 6, 2), torch.tensor([[3, 1], [0, 2]]), randn(2, 3, 2, 2), -2, reference=_update)
case("scatter_update", randn(4, 6, 2), torch.tensor([1, 3]), randn(2, 2, 2), 1, reference=_update)
case(
    "scatter_update_", randn(4, 3, 6, 2), torch.tensor([1, 3]), randn(2, 3, 2, 2), 2, reference=lambda *a: (_update(*a), a[0]), written=(0,)
)
case("npu_gather_sparse_index", randn(3, 4), torch.tensor([[1, 0], [2, 1]]), reference=lambda x, i: x[i], differentiable=True)


def _fill(x: Array, start: Array, end: Array, value: Array, axis: int = -1) -> Array:
    axis %= x.ndim
    for i in range(start.shape[0]):
        for j in range(start.shape[1]):
            for k in range(start[i, j], end[i, j]):
                if x.ndim == 1 or axis < x.ndim - 1:
                    np.moveaxis(x, axis, 0)[k] = value[i]
                else:
                    x[j, ..., k] = value[i]
    return x


_S, _E = torch.tensor([[0, 2, 1], [5, 5, 3]]), torch.tensor([[2, 3, 1], [7, 6, 4]])
case("npu_masked_fill_range", randn(3, 8), _S, _E, randn(2), reference=_fill, differentiable=True)
case("npu_masked_fill_range", randn(3, 2, 8), _S, _E, randn(2), reference=_fill)
case("npu_masked_fill_range", randn(8, 3), _S, _E, randn(2), 0, reference=_fill)
case("npu_masked_fill_range", randn(9), _S[:, :1], _E[:, :1], randn(2), reference=_fill)


# dropout


def _unpacked(mask: Array, shape: Any) -> Array:
    return np.unpackbits(mask, bitorder="little")[: int(np.prod(shape))].reshape(shape)


_MASK = torch.randint(0, 256, (16,), dtype=torch.uint8)
case(
    "npu_dropout_do_mask", randn(5, 7), _MASK, 0.3, reference=lambda x, m, p: (x * _unpacked(m, x.shape) / (1 - p), m), differentiable=True
)
case("npu_dropout_backward", randn(5, 7), _MASK, 0.3, reference=lambda x, m, p: x * _unpacked(m, x.shape) / (1 - p))
_FULL = np.concatenate((np.full(7, 255, np.uint8), [15], np.zeros(8, np.uint8)))  # 60 elements
case("npu_dropout_gen_mask", [6, 10], 0.0, reference=lambda size, p: _FULL)
case("_npu_dropout_gen_mask.Tensor", randn(1), [6, 10], 0.0, 3, 4, reference=lambda x, size, *_: _FULL)
case("_npu_dropout", randn(6, 10), 0.0, reference=lambda x, p: (x, _FULL), differentiable=True)
case("_dropout_with_byte_mask", randn(6, 10), 0.0, reference=lambda x, p: (x, np.ones(60)), differentiable=True)
case("dropout_with_byte_mask", randn(6, 10), 0.4, False, reference=lambda x, p, train: x)


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


case(
    "npu_dropout_with_add_softmax",
    randn(2, 3, 10),
    randn(2, 3, 10),
    0.5,
    0.0,
    -1,
    reference=lambda x, y, alpha, p, dim: (_FULL, _softmax(y + alpha * x), _softmax(y + alpha * x)),
    differentiable=True,
)


def _add_softmax_backward(above: Array, mask: Array, y: Array, alpha: float, p: float, dim: int) -> Any:
    above = above * _unpacked(mask, above.shape) / (1 - p)
    by_sum = np.zeros_like(y)
    for place in np.ndindex(y.shape[:-1]):
        by_sum[place] = (np.diag(y[place]) - np.outer(y[place], y[place])) @ above[place]
    return by_sum * alpha, by_sum


case(
    "npu_dropout_with_add_softmax_backward",
    randn(3, 7),
    _MASK,
    torch.softmax(rand(3, 7), -1),
    0.5,
    0.3,
    -1,
    reference=_add_softmax_backward,
)


def _listed(tensors: list[Array], places: Array, updates: Array, mask: Array | None = None, reduce: str = "update", axis: int = -2) -> Any:
    out = [tensor.copy() for tensor in tensors]
    for number, tensor in enumerate(out):
        if mask is not None and not mask[number]:
            continue
        first, count = places[number] if places.ndim == 2 else (places[number], updates.shape[1:][axis])
        for offset in range(count):
            np.moveaxis(tensor, axis, 0)[first + offset] = np.moveaxis(updates[number], axis, 0)[offset]
    return out


_CACHES = [randn(2, 6, 3) for _ in range(3)]
case("npu_scatter_list", _CACHES, torch.tensor([1, 5, 0]), randn(3, 2, 1, 3), torch.tensor([1, 0, 1]), reference=_listed)
case(
    "npu_scatter_list",
    _CACHES,
    torch.tensor([[1, 1], [0, 2], [2, 0]]),
    randn(3, 2, 6, 2),
    options={"axis": -1},
    reference=_listed,
)
case("npu_scatter_list_", _CACHES, torch.tensor([1, 5, 0]), randn(3, 2, 1, 3), reference=lambda *a: [None, _listed(*a)], written=(0,))

case("copy_memory_", randn(2, 3), randn(2, 3), reference=lambda x, y: (y, y), written=(0,))
