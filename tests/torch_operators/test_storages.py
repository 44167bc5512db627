"""Operators on the memory that tensors stand on."""

from __future__ import annotations

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="the operators of torch_npu need torch")
import torch_npu  # noqa: E402


def test_a_tensor_moves_into_the_memory_of_another_and_keeps_it_alive() -> None:
    combined = torch.zeros(40).npu()
    parts = [torch.nn.Parameter(torch.ones(2, 3).npu()), torch.ones(4).npu()]
    begin = 5
    for part in parts:
        assert torch_npu.get_storage_size(part) == part.numel()
        assert torch_npu.npu_change_data_ptr(part, combined[3:], begin) == 0  # where the memory begins, not the tensor
        assert part.data_ptr() == combined.data_ptr() + 4 * begin
        assert torch_npu.get_storage_size(part) == part.numel()
        begin += part.numel()
    combined.fill_(7)
    assert parts[0].tolist() == [[7.0] * 3] * 2
    parts[0].sum().backward()
    assert parts[0].grad.tolist() == [[1.0] * 3] * 2
    del combined
    gc.collect()
    parts[1].add_(1)
    assert parts[1].tolist() == [8.0] * 4
    assert parts[0].tolist() == [[7.0] * 3] * 2


def test_memory_that_is_too_small_is_refused() -> None:
    small = torch.zeros(4).npu()
    for wrong in ((torch.ones(5).npu(), small, 0), (torch.ones(2).npu(), small, 3), (torch.ones(2).npu(), small, -1)):
        with pytest.raises(RuntimeError, match="npu_change_data_ptr"):
            torch_npu.npu_change_data_ptr(*wrong)
    with pytest.raises(RuntimeError, match="npu_change_data_ptr"):
        torch_npu.npu_change_data_ptr(torch.ones(2).half().npu(), small, 0)


def test_swapped_memory_is_that_of_an_npu_tensor() -> None:
    made = torch_npu.empty_with_swapped_memory([2, 3], dtype=torch.float16, device=torch.device("npu:0"))
    assert made.fill_(2).sum().item() == 12
    assert (made.shape, made.dtype, made.device) == ((2, 3), torch.float16, torch.device("npu:0"))
    assert torch_npu.empty_with_swapped_memory([4]).is_npu


def test_operators_of_several_results_take_tensors_for_them_in_one_list() -> None:
    var, m, v, gradient = (torch.rand(5).npu() for _ in range(4))
    before = [tensor.cpu() for tensor in (var, m, v)]
    results = torch_npu.npu_apply_adam(0.9, 0.99, 0.1, 0.9, 0.99, 1e-8, gradient, False, False, out=(var, m, v))
    assert [result is tensor for result, tensor in zip(results, (var, m, v), strict=True)] == [True] * 3
    assert all(not torch.equal(old, new.cpu()) for old, new in zip(before, (var, m, v), strict=True))
    query, keys = torch.randn(1, 2, 1, 8).npu(), torch.randn(1, 2, 6, 8).npu()
    options = {"num_heads": 2, "input_layout": "BNSD", "scale": 0.3, "softmax_lse_flag": True}
    expected = torch_npu.npu_fused_infer_attention_score(query, keys, keys, **options)
    out = [torch.empty_like(result) for result in expected]
    assert copy.deepcopy(torch_npu.npu_fused_infer_attention_score).__name__ == "npu_fused_infer_attention_score"
    torch_npu.npu_fused_infer_attention_score.out(query, keys, keys, **options, out=out)
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))
