"""Operators that need a group of processes: each check of the programs is a test, on two ranks of one world."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the operators of torch_npu need torch")

import torch

from tests.torch_distributed.test_worlds import checks_of, said
from tests.torch_operators.walk import packet

PROGRAMS = ("summed_products", "exchanged_tokens")


@pytest.mark.slow
@pytest.mark.parametrize(("program", "check"), [(program, check) for program in PROGRAMS for check in checks_of(program)])
def test_every_rank_has_what_one_would_compute(program: str, check: str) -> None:
    for rank, answers in enumerate(said(PROGRAMS, 2)):
        assert answers[check] == "ok", f"rank {rank}:\n{answers[check]}"


def test_shapes_need_no_group() -> None:
    y = packet("npu_mm_all_reduce_base")(torch.ones(2, 5, 3, device="meta"), torch.ones(3, 4, device="meta"), "any")
    assert y.shape == (2, 5, 4)
    y, rows = packet("npu_all_gather_base_mm")(torch.ones(5, 3, device="meta"), torch.ones(3, 4, device="meta"), "any", 2)
    assert (y.shape, rows.shape) == ((10, 4), (10, 3))
    assert packet("npu_mm_reduce_scatter_base")(torch.ones(6, 3, device="meta"), torch.ones(3, 4, device="meta"), "any", 2).shape == (3, 4)
    x, weight, counts = torch.ones(6, 3, device="meta"), torch.ones(2, 3, 4, device="meta"), [1, 2, 0, 3]
    y, shared, rows = packet("npu_alltoallv_gmm")(x, weight, "any", 2, counts, [5, 0, 1, 1], permute_out_flag=True)
    assert (y.shape, shared, rows.shape) == ((7, 4), None, (7, 3))
    y, shared = packet("npu_gmm_alltoallv")(x, weight, "any", 2, counts, [5, 0, 1, 1], mm_x=x, mm_weight=weight[0])
    assert (y.shape, shared.shape) == ((7, 4), (6, 4))


@pytest.mark.parametrize("version", ["", "_v2"])
def test_shapes_of_exchanged_tokens_need_no_group(version: str) -> None:
    x, experts = torch.ones(5, 3, device="meta"), torch.ones(5, 2, dtype=torch.int32, device="meta")
    dispatch = packet(f"npu_moe_distribute_dispatch{version}")
    rows, scales, places, counts, received, none, weights = dispatch(x, experts, "any", 2, 0, 6, quant_mode=2)
    assert (rows.shape, rows.dtype, scales.shape) == ((20, 3), torch.int8, (20,))
    assert (places.numel(), counts.shape, received.shape, none.numel(), weights.numel()) == (20 * 128 if version else 10, (3,), (6,), 0, 0)
    y = packet(f"npu_moe_distribute_combine{version}")(rows.half(), experts, places, received, experts.float(), "any", 2, 0, 6)
    assert (y.shape, y.dtype) == ((5, 3), torch.float16)


def test_what_is_not_computed_between_ranks_is_refused_by_name() -> None:
    given = torch.ones(5, 3), torch.ones(5, 2, dtype=torch.int32), "any", 2, 0
    dispatch = packet("npu_moe_distribute_dispatch_v2")
    with pytest.raises(NotImplementedError, match="shared_expert_rank_num=1"):
        dispatch(*given, 6, shared_expert_rank_num=1)
    with pytest.raises(NotImplementedError, match="scales is not supported: quant_mode 0"):
        dispatch(*given, 6, scales=torch.ones(6, 3))
    with pytest.raises(RuntimeError, match="7 experts on 2 ranks; accepted: a multiple of ep_world_size"):
        dispatch(*given, 7)
    with pytest.raises(RuntimeError, match="sum up to the rows of gmm_x"):
        packet("npu_alltoallv_gmm")(torch.ones(6, 3), torch.ones(2, 3, 4), "any", 2, [1, 1, 1, 1], [1, 1, 1, 1])


def test_without_a_group_it_says_what_makes_one() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        packet("npu_mm_all_reduce_base")(torch.ones(2, 2), torch.ones(2, 2), "any")
