"""Tokens sent to the ranks of their experts and back, beside what one rank with all experts computes. Runs on any number of ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch_npu

from tests.torch_distributed.programs.summed_products import drawn, mine, name

LOCAL, H, N, K = 3, 8, 5, 2
TOKENS = 7


def chosen(special: int = 0) -> list[torch.Tensor]:
    """For each rank (tokens, K) different experts."""
    generator = torch.Generator().manual_seed(5)
    experts = LOCAL * dist.get_world_size() + special
    draws = [torch.rand(TOKENS, experts, generator=generator).argsort(1) for _ in range(dist.get_world_size())]
    return [draw[:, :K].to(torch.int32) for draw in draws]


def group() -> dict[str, Any]:
    world = dist.get_world_size()
    return {"group_ep": name(), "ep_world_size": world, "ep_rank_id": dist.get_rank(), "moe_expert_num": LOCAL * world}


def weights_of_experts() -> torch.Tensor:
    return torch.randn(LOCAL * dist.get_world_size() + 4, H, H, generator=torch.Generator().manual_seed(9)).double()


def through_experts(rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    first = LOCAL * dist.get_rank()
    weights = weights_of_experts()[first : first + LOCAL]
    parts = [p @ w for p, w in zip(rows.cpu().double()[: int(counts.sum())].split(counts.tolist()), weights, strict=True)]
    out = torch.zeros(rows.shape, dtype=torch.float64)
    out[: int(counts.sum())] = torch.cat(parts)
    return out.float().npu()


def together(x: torch.Tensor, experts: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    each = torch.einsum("th,tkhn->tkn", x.double(), weights_of_experts()[experts.long()])
    return (each * scales.double()[..., None]).sum(1)


def check_tokens_come_back_from_their_experts() -> None:
    xs, ids, scales = drawn(TOKENS, H), chosen(), drawn(TOKENS, K)
    own = dist.get_rank()
    for version, place in (("", "expand_idx"), ("_v2", "assist_info_for_combine")):
        dispatch = getattr(torch_npu, f"npu_moe_distribute_dispatch{version}")
        rows, _, places, counts, received, _, sent_scales = dispatch(
            x=mine(xs, torch.float32), expert_ids=ids[own].npu(), expert_scales=mine(scales, torch.float32), **group()
        )
        experts = range(LOCAL * own, LOCAL * (own + 1))
        expected = [
            (x[t], s[t, k]) for e in experts for x, i, s in zip(xs, ids, scales, strict=True) for t, k in (i == e).nonzero().tolist()
        ]
        assert counts.tolist() == [sum(int((i == e).sum()) for i in ids) for e in experts]
        assert torch.equal(rows.cpu()[: len(expected)], torch.stack([row for row, _ in expected]))
        assert torch.equal(sent_scales.cpu()[: len(expected)], torch.stack([scale for _, scale in expected]))
        combine = getattr(torch_npu, f"npu_moe_distribute_combine{version}")
        y = combine(
            expand_x=through_experts(rows, counts),
            expert_ids=ids[own].npu(),
            ep_send_counts=received,
            expert_scales=mine(scales, torch.float32),
            **{place: places},
            **group(),
        )
        torch.testing.assert_close(y.cpu().double(), together(xs[own], ids[own], scales[own]), rtol=1e-4, atol=1e-4)


def check_bytes_have_a_scale_each() -> None:
    xs, ids, smooth = drawn(TOKENS, H), chosen(), drawn(LOCAL * dist.get_world_size(), H)[0].abs()
    own = dist.get_rank()
    rows, scales, *_ = torch_npu.npu_moe_distribute_dispatch_v2(
        mine(xs, torch.float32), ids[own].npu(), **group(), scales=smooth.npu(), quant_mode=2
    )
    experts = range(LOCAL * own, LOCAL * (own + 1))
    expected = [
        x[t].double() * smooth[e].double() for e in experts for x, i in zip(xs, ids, strict=True) for t in (i == e).any(1).nonzero()[:, 0]
    ]
    assert rows.dtype == torch.int8
    found = rows.cpu().double()[: len(expected)] * scales.cpu().double()[: len(expected), None]
    largest = torch.stack(expected).abs().amax(1, keepdim=True)
    assert bool(((found - torch.stack(expected)).abs() <= largest / 127 * 0.51).all())


def check_masked_tokens_and_experts_without_networks() -> None:
    world, own = dist.get_world_size(), dist.get_rank()
    xs, ids, scales = drawn(TOKENS, H), chosen(special=3), drawn(TOKENS, K)
    alphas = [t[0].npu() for t in (drawn(1, H), drawn(H, 1), drawn(1, H, 1))]
    alphas = [a.reshape(1, H) for a in alphas]
    mask = torch.rand(TOKENS, K, generator=torch.Generator().manual_seed(own)) < 0.8
    special = {"zero_expert_num": 1, "copy_expert_num": 1, "const_expert_num": 1, "x_active_mask": mask.npu(), "expert_token_nums_type": 0}
    rows, _, places, ends, received, *_ = torch_npu.npu_moe_distribute_dispatch_v2(
        mine(xs, torch.float32), ids[own].npu(), **group(), **special
    )
    special.pop("expert_token_nums_type")
    consts = dict(zip(("const_expert_alpha_1", "const_expert_alpha_2", "const_expert_v"), alphas, strict=True))
    counts = torch.diff(ends.cpu(), prepend=torch.zeros(1, dtype=torch.int64))
    y = torch_npu.npu_moe_distribute_combine_v2(
        through_experts(rows, counts),
        ids[own].npu(),
        places,
        received,
        mine(scales, torch.float32),
        **group(),
        **special,
        **consts,
        ori_x=mine(xs, torch.float32),
    )
    x, (one, two, value) = xs[own].double(), [a.cpu().double()[0] for a in alphas]
    expected = torch.zeros(TOKENS, H, dtype=torch.float64)
    for t in range(TOKENS):
        for k in range(K):
            e = int(ids[own][t, k]) - LOCAL * world
            kinds = {0: torch.zeros(H).double(), 1: x[t], 2: one * x[t] + two * value}
            result = x[t] @ weights_of_experts()[e + LOCAL * world] if e < 0 else kinds[e]
            expected[t] += result * scales[own][t, k].double() * bool(mask[t, k])
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def check_products_before_and_behind_the_exchange() -> None:
    world, own = dist.get_world_size(), dist.get_rank()
    counts = torch.randint(0, 4, (world, world * LOCAL), generator=torch.Generator().manual_seed(3))
    xs = [x[: int(c.sum())] for x, c in zip(drawn(40, H), counts, strict=True)]
    weights = torch.randn(world * LOCAL, H, N, generator=torch.Generator().manual_seed(4)).double()
    local, sent = weights[LOCAL * own : LOCAL * (own + 1)], counts[own].tolist()
    received = counts.view(world, world, LOCAL)[:, own].flatten().tolist()
    shared = {"mm_x": mine(drawn(4, H), torch.float32), "mm_weight": mine(drawn(H, 3), torch.float32)}
    given = mine(xs, torch.float32), local.float().npu(), name(), world
    y, product, rows = torch_npu.npu_alltoallv_gmm(*given, sent, received, **shared, permute_out_flag=True)
    experts = [torch.repeat_interleave(torch.arange(world * LOCAL), c) for c in counts]
    came = torch.cat([x[e == LOCAL * own + i] for i in range(LOCAL) for x, e in zip(xs, experts, strict=True)])
    assert torch.equal(rows.cpu(), came)
    torch.testing.assert_close(
        product.cpu().double(), shared["mm_x"].cpu().double() @ shared["mm_weight"].cpu().double(), rtol=1e-4, atol=1e-4
    )
    of = torch.cat([torch.full((int(counts[:, LOCAL * own + i].sum()),), i) for i in range(LOCAL)])
    torch.testing.assert_close(y.cpu().double(), torch.einsum("th,thn->tn", came.double(), local[of]), rtol=1e-4, atol=1e-4)
    back, nothing = torch_npu.npu_gmm_alltoallv(y, local.transpose(1, 2).float().npu(), name(), world, received, sent)
    assert nothing is None
    expected = torch.einsum("th,thn->tn", xs[own].double(), weights[experts[own]] @ weights[experts[own]].transpose(1, 2))
    torch.testing.assert_close(back.cpu().double(), expected, rtol=1e-3, atol=1e-3)
