"""Attention by torch's fused kernel is that of our blocks of rows, with its sums."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the operators of torch_npu need torch")

import torch

from anycann.adapters.torch.operators.attention import core


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize(("heads", "groups", "rows", "columns"), [(4, 4, 33, 33), (6, 2, 40, 40), (2, 2, 1, 50), (2, 2, 20, 5)])
def test_both_ways_agree(causal: bool, dtype: torch.dtype, tolerance: float, heads: int, groups: int, rows: int, columns: int) -> None:
    q, k, v = (torch.randn(2, n, s, 16).to(dtype) for n, s in ((heads, rows), (groups, columns), (groups, columns)))
    fused = core.attend_plainly(q, k, v, 0.3, causal)
    if causal and rows != columns:
        assert fused is None
        return
    masked = torch.ones(rows, columns, dtype=torch.bool).triu(1) if causal else None
    blocks = core.attend(core.Problem(q.double(), k.double(), v.double(), 0.3, masked=masked))
    assert fused is not None
    assert fused.out.dtype == dtype
    torch.testing.assert_close(fused.out.double(), blocks.out, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(fused.logarithm.double(), blocks.logarithm, rtol=tolerance, atol=tolerance)


def test_few_rows_of_shared_keys_are_not_for_it() -> None:
    assert core.attend_plainly(torch.randn(1, 4, 1, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8), 1.0, False) is None


def test_gradients_with_dropout_take_seeds_with_and_without_axes() -> None:
    q, k, v, above = (torch.randn(1, 2, 5, 4) for _ in range(4))
    out, largest, total, _, seed, offset, *_ = torch.ops.npu.npu_fusion_attention_v3(q, k, v, 2, "BNSD", keep_prob=0.5)
    rest = {"softmax_max": largest, "softmax_sum": total, "attention_in": out, "keep_prob": 0.5}
    backward = torch.ops.npu.npu_fusion_attention_grad_v3
    plain = backward(q, k, v, above, 2, "BNSD", seed=seed.reshape(1), offset=offset.reshape(1), **rest)
    scalars = backward(q, k, v, above, 2, "BNSD", seed=seed.reshape(()), offset=offset.reshape(()), **rest)
    assert all(torch.equal(a, b) for a, b in zip(plain[:3], scalars[:3], strict=True))
