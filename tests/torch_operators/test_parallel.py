"""Operators that need a group of processes: each check of the program is a test, on two ranks."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the operators of torch_npu need torch")

import torch

from tests.torch_distributed.test_worlds import checks_of, said
from tests.torch_operators.walk import packet


@pytest.mark.slow
@pytest.mark.parametrize("check", checks_of("summed_products"))
def test_every_rank_has_the_product(check: str) -> None:
    for rank, answers in enumerate(said("summed_products", 2)):
        assert answers[check] == "ok", f"rank {rank}:\n{answers[check]}"


def test_shapes_need_no_group() -> None:
    y = packet("npu_mm_all_reduce_base")(torch.ones(2, 5, 3, device="meta"), torch.ones(3, 4, device="meta"), "any")
    assert y.shape == (2, 5, 4)
    y, rows = packet("npu_all_gather_base_mm")(torch.ones(5, 3, device="meta"), torch.ones(3, 4, device="meta"), "any", 2)
    assert (y.shape, rows.shape) == ((10, 4), (10, 3))
    assert packet("npu_mm_reduce_scatter_base")(torch.ones(6, 3, device="meta"), torch.ones(3, 4, device="meta"), "any", 2).shape == (3, 4)


def test_without_a_group_it_says_what_makes_one() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        packet("npu_mm_all_reduce_base")(torch.ones(2, 2), torch.ones(2, 2), "any")
