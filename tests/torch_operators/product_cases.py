"""Products and convolutions of floats, by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, randn

Array = np.ndarray


case("npu_linear", randn(3, 4), randn(5, 4), randn(5), reference=lambda x, w, b: x @ w.T + b, differentiable=True)
case("npu_linear_backward", randn(3, 5), randn(3, 4), randn(5, 4), reference=lambda g, x, w: (g @ w, g.T @ x), differentiable=True)
case("npu_bmmV2", randn(2, 3, 4), randn(2, 4, 5), [], reference=lambda a, b, s: a @ b, differentiable=True)
case("npu_bmmV2", randn(2, 3, 4), randn(2, 4, 5), [3, 5], reference=lambda a, b, s: (a @ b).sum(0), differentiable=True)


def _transposed(x: Array, w: Array, perm_x1: Any = (0, 1, 2), perm_x2: Any = (0, 1, 2), batch_split_factor: int = 1) -> Array:
    y = (x.transpose(perm_x1) @ w.transpose(perm_x2)).transpose(1, 0, 2)
    if batch_split_factor == 1:
        return y
    flat = y.reshape(y.shape[0], -1)
    return np.stack(np.split(flat, batch_split_factor, 1))


case("npu_transpose_batchmatmul", randn(2, 3, 4), randn(2, 4, 6), reference=_transposed, differentiable=True)
case(
    "npu_transpose_batchmatmul",
    randn(3, 2, 4),
    randn(2, 4, 6),
    options={"perm_x1": [1, 0, 2], "batch_split_factor": 4},
    reference=_transposed,
)


def _convolved(x: Array, w: Array, b: Array | None, stride: Any, padding: Any, dilation: Any, groups: int, **_: Any) -> Array:
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    kernel = w.shape[2:]
    size = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    share_in, share_out = w.shape[1], w.shape[0] // groups
    for place in np.ndindex(*size):
        for tap in np.ndindex(*kernel):
            at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True))
            for o in range(w.shape[0]):
                g = o // share_out
                out[(slice(None), o, *place)] += x[(slice(None), slice(g * share_in, (g + 1) * share_in), *at)] @ w[(o, slice(None), *tap)]
    return out if b is None else out + b.reshape(1, -1, *(1 for _ in kernel))


_2D = (randn(2, 4, 5, 6), randn(6, 2, 3, 2), randn(6), [2, 1], [1, 0], [1, 2], 2)
_3D = (randn(1, 2, 4, 4, 3), randn(3, 2, 2, 3, 1), None, [1, 2, 1], [0, 1, 0], [1, 1, 1], 1)
for _name, _call in (("npu_conv2d", _2D), ("npu_conv3d", _3D), ("npu_convolution", _2D), ("npu_convolution", _3D)):
    case(_name, *_call, reference=_convolved, differentiable=True)
    if _name != "npu_convolution":
        case(f"{_name}.out", *_call, options={"out": torch.empty(0)}, reference=_convolved)


def _spread(x: Array, w: Array, b: Array | None, padding: Any, output_padding: Any, stride: Any, dilation: Any, groups: int) -> Array:
    kernel = w.shape[2:]
    full = [(n - 1) * s + d * (k - 1) + 1 + o for n, k, s, d, o in zip(x.shape[2:], kernel, stride, dilation, output_padding, strict=True)]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *full))
    share_in, share_out = x.shape[1] // groups, w.shape[1]
    for place in np.ndindex(*x.shape[2:]):
        for tap in np.ndindex(*kernel):
            at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True))
            for i in range(x.shape[1]):
                g = i // share_in
                out[(slice(None), slice(g * share_out, (g + 1) * share_out), *at)] += np.outer(
                    x[(slice(None), i, *place)], w[(i, slice(None), *tap)]
                )
    cut = tuple(slice(p, n - p) for p, n in zip(padding, full, strict=True))
    out = out[(slice(None), slice(None), *cut)]
    return out if b is None else out + b.reshape(1, -1, *(1 for _ in kernel))


_T2 = (randn(2, 4, 3, 4), randn(4, 3, 3, 2), randn(6), [1, 0], [1, 0], [2, 1], [1, 2], 2)
case("npu_conv_transpose2d", *_T2, reference=_spread, differentiable=True)
case("npu_convolution_transpose", *_T2, reference=_spread, differentiable=True)
case("npu_convolution_transpose", _T2[0][0], *_T2[1:], reference=lambda x, *rest: _spread(x[None], *rest)[0])
case(
    "npu_convolution_transpose",
    randn(1, 2, 3, 2, 2),
    randn(2, 3, 2, 1, 2),
    None,
    [0, 0, 1],
    [0, 0, 0],
    [2, 1, 1],
    [1, 1, 1],
    1,
    reference=_spread,
)


# quantisation


_ENDS = (randn(1, 2, 4, 5), randn(2, 2, 3, 2), None, [2, 1], [1, 0, 2, 1], [1, 1], 1)


def _padded_ends(x: Array, w: Array, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    top, bottom, left, right = padding
    return _convolved(np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)]), w, b, stride, [0, 0], dilation, groups)


case("npu_conv2d", *_ENDS, reference=_padded_ends)
for _name, _call in (("npu_conv2d", _2D), ("npu_conv3d", _3D)):
    case(_name, _call[0][0], *_call[1:], reference=lambda x, *rest: _convolved(x[None], *rest)[0])
case(
    "_npu_matmul_add_fp32",
    randn(5, 3),
    randn(5, 4),
    randn(3, 4),
    reference=lambda x, w, c: (None, c + x.T @ w),
    written=(2,),
)


def _added(y: Array, x: Array, w: Array, groups: Array, group_list_type: int = 0) -> Array:
    ends = np.cumsum(groups) if group_list_type else groups
    parts = [x[a:b].T @ w[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    return y + np.stack(parts).reshape(y.shape)


_K = (randn(6, 2), randn(6, 3), torch.tensor([2, 2, 5]))
case("npu_grouped_matmul_add", randn(6, 3), *_K, reference=_added, differentiable=True)
case("npu_grouped_matmul_add", randn(3, 2, 3), *_K[:2], torch.tensor([2, 0, 4]), options={"group_list_type": 1}, reference=_added)
case("npu_grouped_matmul_add", randn(2, 3), *_K[:2], torch.tensor([4]), reference=_added, differentiable=True)
_NAN_BEHIND = [x.index_fill(0, torch.tensor([5]), torch.nan) for x in _K[:2]]
case("npu_grouped_matmul_add", randn(6, 3), *_NAN_BEHIND, _K[2], reference=_added)
case("npu_grouped_matmul_add_", randn(6, 3), *_K, reference=lambda *a: (_added(*a),) * 2, written=(0,))

_WEIGHT = randn(4, 6)
case("npu_prefetch", _WEIGHT, None, 64, reference=lambda *_: (None, _WEIGHT.double().numpy()), written=(0,), check_exactly=True)
