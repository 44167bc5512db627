"""Operators of the transformer library take lengths from the host beside tensors on the npu."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the operators of torch_npu need torch")
import torch_npu  # noqa: E402


def test_lengths_of_sequences_come_from_the_host() -> None:
    query = torch.randn(2, 2, 4)
    keys, values, table, lengths = torch.randn(3, 4, 2, 4), torch.randn(3, 4, 2, 4), torch.tensor([[2, 0], [1, 2]]), torch.tensor([6, 3])
    expected, out = torch.empty(2, 2, 4), torch.empty(2, 2, 4).npu()
    torch.ops.atb._npu_paged_attention(query, keys, values, 2, 2, 0.5, table, lengths, expected)
    moved = [tensor.npu() for tensor in (query, keys, values)]
    torch_npu._npu_paged_attention(*moved, 2, 2, 0.5, table.npu(), lengths, out)
    torch.testing.assert_close(out.cpu(), expected)
    again = torch.zeros(2, 2, 4).npu()
    options = {"value_cache": moved[2], "num_kv_heads": 2, "num_heads": 2, "scale_value": 0.5}
    assert torch_npu.atb._npu_paged_attention_v2(moved[0], moved[1], table.npu(), lengths.tolist(), **options, out=again) is again
    torch.testing.assert_close(again.cpu(), expected)


def test_gradients_of_attention_take_seeds_from_the_host() -> None:
    q, k, v, above = (torch.randn(1, 2, 5, 4).npu() for _ in range(4))
    out, largest, total, _, seed, offset, *_ = torch_npu.npu_fusion_attention_v3(q, k, v, 2, "BNSD", keep_prob=0.5)
    rest = {"softmax_max": largest, "softmax_sum": total, "attention_in": out, "keep_prob": 0.5}
    backward = torch_npu.npu_fusion_attention_grad_v3
    expected = backward(q, k, v, above, 2, "BNSD", seed=seed, offset=offset, **rest)
    found = backward(q, k, v, above, 2, "BNSD", seed=seed.cpu().reshape(()), offset=offset.cpu().reshape(()), **rest)
    assert all(torch.equal(a, b) for a, b in zip(expected[:3], found[:3], strict=True))
