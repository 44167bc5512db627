"""Operators of the transformer library take lengths from the host beside tensors on the npu."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the operators of torch_npu need torch")
torch_npu = pytest.importorskip("torch_npu", reason="the npu device is not there yet")


def test_lengths_of_sequences_come_from_the_host() -> None:
    query = torch.randn(2, 2, 4)
    keys, values, table, lengths = torch.randn(3, 4, 2, 4), torch.randn(3, 4, 2, 4), torch.tensor([[2, 0], [1, 2]]), torch.tensor([6, 3])
    expected, out = torch.empty(2, 2, 4), torch.empty(2, 2, 4).npu()
    torch.ops.atb._npu_paged_attention(query, keys, values, 2, 2, 0.5, table, lengths, expected)
    moved = [tensor.npu() for tensor in (query, keys, values)]
    torch_npu._npu_paged_attention(*moved, 2, 2, 0.5, table.npu(), lengths, out)
    torch.testing.assert_close(out.cpu(), expected)
