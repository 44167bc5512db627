"""Products of matrices that are split over the ranks, beside float64. Runs on any number of ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch_npu

M, K, N = 5, 6, 4


def name() -> str:
    return dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(dist.get_rank())


def drawn(*shape: int) -> list[torch.Tensor]:
    """A tensor for each rank, known to all."""
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(shape, generator=generator) for _ in range(dist.get_world_size())]


def mine(tensors: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return tensors[dist.get_rank()].to(dtype).npu()


def check_floats() -> None:
    x1, x2, bias, x3 = drawn(2, M, K), drawn(K, N), drawn(N), drawn(2, M, N)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
        y = torch_npu.npu_mm_all_reduce_base(mine(x1, dtype), mine(x2, dtype), name(), bias=mine(bias, dtype), x3=mine(x3, dtype))
        expected = sum(a.double() @ b.double() + c.double() + d.double() for a, b, c, d in zip(x1, x2, bias, x3, strict=True))
        assert y.dtype == dtype
        assert y.device.type == "npu"
        torch.testing.assert_close(y.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def check_weights_of_bytes() -> None:
    x1, x2, scale, offset = drawn(M, K), [(t * 40).round() for t in drawn(K, N)], drawn(1, N), drawn(1, N)
    options = {"antiquant_scale": mine(scale, torch.float16), "antiquant_offset": mine(offset, torch.float16)}
    y = torch_npu.npu_mm_all_reduce_base(mine(x1, torch.float16), mine(x2, torch.int8), name(), **options)
    expected = sum(a.double() @ ((b.double() + o.double()) * s.double()) for a, b, s, o in zip(x1, x2, scale, offset, strict=True))
    torch.testing.assert_close(y.cpu().double(), expected, rtol=2e-2, atol=2.0)


def check_bytes() -> None:
    x1, x2 = [(t * 40).round() for t in drawn(M, K)], [(t * 40).round() for t in drawn(K, N)]
    scale, by_token = [t.abs() for t in drawn(N)], [t.abs() for t in drawn(M)]
    options = {"dequant_scale": mine(scale, torch.float32), "pertoken_scale": mine(by_token, torch.float32)}
    y = torch_npu.npu_mm_all_reduce_base(mine(x1, torch.int8), mine(x2, torch.int8), name(), **options)
    expected = sum(a.double() @ b.double() * s.double() * t.double()[:, None] for a, b, s, t in zip(x1, x2, scale, by_token, strict=True))
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.cpu().double(), expected, rtol=2e-3, atol=1.0)


def check_gathered_rows() -> None:
    x1, x2, bias = drawn(M, K), drawn(K, N), drawn(N)
    given = mine(x1, torch.float32), mine(x2, torch.float32), name(), dist.get_world_size()
    y, rows = torch_npu.npu_all_gather_base_mm(*given, bias=mine(bias, torch.float32))
    own, expected = dist.get_rank(), torch.cat(x1)
    assert torch.equal(rows.cpu(), expected)
    torch.testing.assert_close(y.cpu().double(), expected.double() @ x2[own].double() + bias[own].double(), rtol=1e-5, atol=1e-5)
    _, nothing = torch_npu.npu_all_gather_base_mm(*given, gather_output=False)
    assert nothing.numel() == 0


def check_scattered_sums() -> None:
    world = dist.get_world_size()
    x1, x2 = drawn(3 * world, K), drawn(K, N)
    y = torch_npu.npu_mm_reduce_scatter_base(mine(x1, torch.float16), mine(x2, torch.float16), name(), world)
    expected = sum(a.double() @ b.double() for a, b in zip(x1, x2, strict=True))
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.cpu().double(), expected[3 * dist.get_rank() :][:3], rtol=2e-2, atol=2e-2)


def check_unknown_groups() -> None:
    with pytest.raises(RuntimeError, match=f"no group of this process is named 'another'; there are: {name()}"):
        torch_npu.npu_mm_all_reduce_base(torch.ones(2, 2).npu(), torch.ones(2, 2).npu(), "another")
