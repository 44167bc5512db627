"""What the operators do not compute they refuse by name; what is wrong they name with shapes and what is accepted."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators of torch_npu need torch")

from anycann.adapters.torch.operators.all import OPERATORS  # noqa: E402
from tests.torch_operators.walk import packet  # noqa: E402

_Q = torch.randn(2, 4, 3, 8)
_BYTES = torch.zeros(3, 8, dtype=torch.int8)
_EIGHT = torch.zeros(2, 4, dtype=torch.float8_e4m3fn)

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("npu_scaled_masked_softmax", (_Q, _Q > 0, 1.0, True), {}, "fixed_triu_mask"),
    ("npu_rotary_mul", (_Q, _Q, _Q, "quarter"), {}, "rotary_mode='quarter'"),
    ("npu_fusion_attention", (_Q, _Q, _Q, 4, "BNSD"), {"padding_mask": _Q}, "padding_mask"),
    ("npu_fusion_attention_v2", (_Q, _Q, _Q, 4, "BNSD"), {"pse_type": 2}, "pse_type=2"),
    ("npu_fusion_attention_v2", (_Q, _Q, _Q, 4, "BNSD"), {"q_start_idx": [1]}, "q_start_idx"),
    ("npu_fusion_attention_grad", (_Q, _Q, _Q, _Q, 4, "BNSD"), {}, "attention_in"),
    (
        "npu_fused_infer_attention_score",
        (_Q, _Q, _Q),
        {"num_heads": 4, "input_layout": "BNSD", "quant_scale1": torch.ones(1)},
        "quant_scale1",
    ),
    ("npu_fused_infer_attention_score", (_Q.to(torch.int8), _Q, _Q), {"num_heads": 4, "input_layout": "BNSD"}, "a query of int8"),
    ("npu_fused_infer_attention_score_v2", (_Q, _Q, _Q), {"num_query_heads": 4, "input_layout": "BNSD", "query_dtype": 1}, "query_dtype"),
    ("npu_dynamic_quant", (_Q,), {"quant_mode": "pertensor"}, "quant_mode='pertensor'"),
    ("npu_dynamic_quant", (_Q,), {"dst_type": torch.float8_e4m3fn}, "dst_type"),
    ("npu_quant_matmul", (_BYTES, _BYTES.T, torch.ones(1)), {"x1_dtype": 1}, "x1_dtype"),
    ("npu_quant_matmul", (_Q[0, 0], _BYTES.T, torch.ones(1)), {}, "x1 of torch.float32"),
    ("npu_swiglu_quant", (_Q,), {"quant_mode": 2}, "quant_mode=2"),
    (
        "npu_grouped_matmul_swiglu_quant_v2",
        (_BYTES, [_BYTES[None]], [torch.ones(1, 2)], torch.ones(1), torch.ones(1, dtype=torch.int64)),
        {"quant_dtype": 24},
        "quant_dtype=24",
    ),
    ("npu_moe_gating_top_k", (_Q[0, 0], 2), {"renorm": 1}, "renorm=1"),
    ("npu_moe_init_routing_v2", (_Q[0, 0], torch.zeros(3, 2, dtype=torch.int32)), {"expert_num": 2, "quant_mode": 9}, "quant_mode=9"),
    ("npu_grouped_matmul", ([_BYTES], [_Q[0, 0].T]), {}, "x of torch.int8"),
    ("npu_ffn", (_Q[0, 0], torch.ones(1, 8, 4), torch.ones(1, 2, 8), "swiglu"), {"expert_tokens": [3]}, "activation='swiglu'"),
    ("npu_ffn", (_Q[0, 0], torch.ones(8, 4), torch.ones(4, 2), "relu"), {"scale": torch.ones(1)}, "scale is not supported: it is for int8"),
    (
        "npu_fused_infer_attention_score",
        (_Q, *[_Q.to(torch.int8)] * 2),
        {"num_heads": 4, "input_layout": "BNSD", "antiquant_mode": 1, "antiquant_scale": torch.ones(2, 2, 1)},
        "scales of (2, 1) float32 in mode 1",
    ),
    ("npu_roi_align", (_Q, torch.zeros(1, 5), 1.0, 2, 2, 2, 2), {}, "roi_end_mode=2"),
    ("npu_roi_align", (_Q, torch.zeros(1, 5), 1.0, 2, 2, 0, 3), {}, "sample_num=0"),
    ("npu_giou", (torch.ones(4, 2), torch.ones(4, 2), True, False, 1), {}, "mode=1"),
    ("npu_batch_nms", (torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1), 0.1, 0.1, 1, 1, True), {}, "change_coordinate_frame"),
    ("npu_one_hot", (torch.zeros(2, dtype=torch.int32), 0, 3), {}, "num_classes=0"),
    ("npu_dtype_cast", (_Q, 5, 1), {}, "input_dtype"),
    ("npu_dynamic_mx_quant", (_Q,), {"dst_type": 297}, "dst_type=297"),
    ("npu_dynamic_mx_quant", (_Q,), {"dst_type": torch.float8_e5m2, "scale_alg": 2}, "scale_alg=2"),
    ("npu_quant_matmul", (_EIGHT, _EIGHT.T, torch.ones(2)), {"group_sizes": [1, 1, 32]}, "group_sizes=[1, 1, 32]"),
    (
        "npu_quant_lightning_indexer",
        (_BYTES[:, None, None], _BYTES[:, None, None], torch.ones(3, 1, 1), *[torch.ones(3, 1, 1)] * 2, 0, 0),
        {"query_dtype": 290},
        "query_dtype",
    ),
    ("npu_mm_all_reduce_base", (_Q, _Q, "any"), {"reduce_op": "max"}, "reduce_op='max'"),
    ("npu_mm_all_reduce_base", (_Q, _Q, "any"), {"comm_quant_scale_1": torch.ones(1)}, "comm_quant_scale_1"),
]
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("npu_swiglu", (torch.ones(2, 3),), {}, r"npu_swiglu: axis -1 of \(2, 3\) float32 .* accepted: an even size"),
    (
        "npu_rms_norm",
        (torch.ones(2, 3), torch.ones(4)),
        {},
        r"npu_rms_norm: input and gamma of \(2, 3\) float32 and \(4,\) float32; accepted",
    ),
    ("npu_add_rms_norm", (torch.ones(2, 3), torch.ones(3, 2), torch.ones(3)), {}, "equal shapes"),
    ("npu_fusion_attention", (_Q, _Q, _Q, 4, "NBSD"), {}, "layout 'NBSD'; accepted: BSH, SBH, BSND, BNSD, TND"),
    ("npu_fusion_attention", (_Q, _Q, _Q, 3, "BNSD"), {}, "3 heads for queries"),
    ("npu_fusion_attention", (_Q, _Q, _Q, 4, "BNSD"), {"sparse_mode": 9}, "sparse_mode 9; accepted: 0 to 8"),
    ("npu_fusion_attention", (_Q, _Q, _Q, 4, "BNSD"), {"keep_prob": 0.0}, "keep_prob 0.0"),
    ("npu_fusion_attention", (_Q[0], _Q[0], _Q[0], 3, "TND"), {}, "TND without actual_seq_qlen|lengths"),
    ("npu_fusion_attention", (_Q, _Q, _Q.double(), 4, "BNSD"), {}, "one dtype"),
    ("npu_fused_infer_attention_score", (_Q, _Q, _Q), {"num_heads": 4, "num_key_value_heads": 3, "input_layout": "BNSD"}, "4 heads on 3"),
    ("npu_scatter_nd_update", (torch.ones(3, 4), torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 3)), {}, r"updates of \(2, 4\)"),
    ("npu_dynamic_quant", (torch.ones(2, 3),), {"dst_type": torch.quint4x2}, "a multiple of 8"),
    ("npu_iou", (torch.ones(2, 3), torch.ones(2, 4)), {}, r"npu_iou: boxes of \(2, 3\) float32 and \(2, 4\) float32; accepted: \(N, 4\)"),
    ("npu_slice", (torch.ones(3, 4), [1, 0], [3, 4]), {}, "a box inside the tensor"),
    ("npu_moe_gating_top_k_softmax", (torch.ones(3, 4), None, 5), {}, "k 5"),
    (
        "npu_add_rms_norm",
        (torch.ones(2, 3), torch.ones(2, 3).half(), torch.ones(3)),
        {},
        r"\(2, 3\) float16; accepted: equal shapes and dtypes",
    ),
    (
        "npu_grouped_matmul",
        ([_EIGHT], [_EIGHT.T]),
        {"group_list": torch.tensor([4]), "group_type": 2, "split_item": 3},
        "accepted: scale and per_token_scale of float8_e8m0fnu",
    ),
    ("npu_ffn", (torch.ones(3, 8), torch.ones(2, 8, 4), torch.ones(2, 4, 8), "relu"), {}, r"\(k, n\), or \(experts, k, n\) with"),
    ("npu_dynamic_block_quant", (torch.ones(2, 3),), {"min_scale": -1.0}, "min_scale=-1.0; accepted: 0 or more"),
    ("npu_rms_norm", (torch.ones(2, 3, dtype=torch.int32), torch.ones(3, dtype=torch.int32)), {}, "int32; accepted: floats"),
    ("npu_dynamic_quant", (torch.ones(2, 3, dtype=torch.int32),), {}, r"npu_dynamic_quant: \(2, 3\) int32; accepted: floats"),
    ("npu_fusion_attention", (_Q, _Q, _Q, 4, "BNSD"), {"atten_mask": torch.ones(5, 5)}, "a mask of .* float32; accepted: bool or uint8"),
    (
        "npu_moe_init_routing",
        (torch.ones(3, 4), *[torch.zeros(n, 2, dtype=torch.int32) for n in (3, 2)], 3),
        {},
        r"accepted: x \(rows, H\)",
    ),
    ("npu_fused_infer_attention_score", (_Q, _Q, _Q), {"num_heads": 2, "input_layout": "BNSD"}, "accepted: 2 heads"),
    # what a kernel of torch says, and the call it was for
    (
        "npu_rotary_mul",
        (torch.ones(1, 2, 3, 8), *[torch.ones(1, 1, 4, 8)] * 2),
        {},
        r"\(3\) must match .*\nin npu::npu_rotary_mul\(cpu float32",
    ),
    ("npu_linear", (torch.ones(2, 3), torch.ones(4, 5)), {}, r"cannot be multiplied (.|\n)*\nin npu::npu_linear\(cpu float32\[2, 3\], cpu"),
]


def _name(case: tuple[str, Any, Any, str]) -> str:
    return f"{case[0]}-{case[3][:30]}"


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_what_is_not_computed_is_refused_by_name(case: tuple[str, tuple[Any, ...], dict[str, Any], str]) -> None:
    operator, arguments, options, words = case
    with pytest.raises(NotImplementedError) as raised:
        packet(operator)(*arguments, **options)
    assert words in str(raised.value)
    assert operator.removesuffix("_grad").removesuffix("_v2") in str(raised.value)


@pytest.mark.parametrize("case", WRONG, ids=_name)
def test_wrong_tensors_are_named_with_what_is_accepted(case: tuple[str, tuple[Any, ...], dict[str, Any], str]) -> None:
    operator, arguments, options, words = case
    with pytest.raises(RuntimeError, match=words):
        packet(operator)(*arguments, **options)


def test_a_seed_gives_the_same_dropout_and_its_gradient() -> None:
    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    call = {"scale": 0.3, "keep_prob": 0.7}
    one = torch.ops.npu.npu_fusion_attention(q, q, q, 4, "BNSD", **call)
    other = torch.ops.npu.npu_fusion_attention(q, q, q, 4, "BNSD", seed=one[4], offset=one[5], **call)
    assert torch.equal(one[0], other[0])
    assert one[6] == 2 * 4 * 16 * 16
    assert not torch.equal(one[0], torch.ops.npu.npu_fusion_attention(q, q, q, 4, "BNSD", **call)[0])
    mask = torch.ops.npu._npu_dropout_gen_mask(q, [2, 4, 16, 16], 1 - 0.7, one[4], one[5])
    kept = torch.from_numpy(__import__("numpy").unpackbits(mask.numpy(), bitorder="little"))[: one[6]].reshape(2, 4, 16, 16)
    weights = torch.softmax(q @ q.mT * 0.3, -1) * kept / 0.7
    torch.testing.assert_close(one[0], weights @ q, rtol=1e-4, atol=1e-5)
    (ours,), (theirs,) = torch.autograd.grad(one[0].square().sum(), q), torch.autograd.grad((weights @ q).square().sum(), q)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_the_seed_of_the_npu_decides_its_dropout() -> None:
    q = torch.randn(1, 2, 16, 8, device="npu")
    drawn = []
    for _ in range(2):
        torch.npu.manual_seed(5)
        drawn += [torch.ops.npu.npu_fusion_attention(q, q, q, 2, "BNSD", keep_prob=0.5)[0] for _ in range(2)]
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])


def test_a_mask_given_from_outside_is_used_forwards_and_backwards() -> None:
    q = torch.randn(1, 2, 8, 4, requires_grad=True)
    mask = torch.ops.npu._npu_dropout_gen_mask(q, [1, 2, 8, 8], 0.5, 7, 3)
    with_mask = torch.ops.npu.npu_fusion_attention(q, q, q, 2, "BNSD", keep_prob=0.5, dropout_mask=mask)
    by_seed = torch.ops.npu.npu_fusion_attention(q, q, q, 2, "BNSD", keep_prob=0.5, seed=7, offset=3)
    assert torch.equal(with_mask[0], by_seed[0])
    grads = [torch.autograd.grad(y[0].sum(), q)[0] for y in (with_mask, by_seed)]
    torch.testing.assert_close(*grads)


def test_parts_of_keys_merged_give_the_gradients_of_the_whole() -> None:
    """Ring attention: gradients of a part of the keys from the result and the statistics of all of them."""
    q, k, v, above = (torch.randn(1, 2, 6, 4) for _ in range(4))
    whole = torch.ops.npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.5)
    known = {"softmax_max": whole[1], "softmax_sum": whole[2], "attention_in": whole[0], "scale_value": 0.5}
    all_of_it = torch.ops.npu.npu_fusion_attention_grad(q, k, v, above, 2, "BNSD", **known)
    parts = [
        torch.ops.npu.npu_fusion_attention_grad(q, k[:, :, s], v[:, :, s], above, 2, "BNSD", **known) for s in (slice(0, 2), slice(2, 6))
    ]
    torch.testing.assert_close(parts[0][0] + parts[1][0], all_of_it[0])
    torch.testing.assert_close(torch.cat([p[1] for p in parts], 2), all_of_it[1])
    torch.testing.assert_close(torch.cat([p[2] for p in parts], 2), all_of_it[2])


def test_long_sequences_are_computed_some_rows_at_a_time() -> None:
    q, k = torch.randn(1, 8, 1100, 16), torch.randn(1, 8, 1300, 16)
    y = torch.ops.npu.npu_fusion_attention(q, k, k, 8, "BNSD", scale=0.25)[0]
    torch.testing.assert_close(y, torch.nn.functional.scaled_dot_product_attention(q, k, k), rtol=1e-4, atol=1e-5)


def test_formats_are_properties_of_tensors() -> None:
    from anycann.adapters.torch.operators.formats import Format, get_npu_format, npu_format_cast, npu_format_cast_

    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    assert get_npu_format(x) == Format.NCHW
    assert get_npu_format(torch.ones(3)) == Format.ND
    y = npu_format_cast(x, Format.FRACTAL_NZ)
    assert get_npu_format(y) == 29
    assert torch.equal(x, y)
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert get_npu_format(npu_format_cast_(torch.ones(2, 2), y)) == 29
    assert get_npu_format(npu_format_cast(npu_format_cast(x, Format.ND), y)) == Format.FRACTAL_NZ
    assert get_npu_format(npu_format_cast(y, Format.ND)) == Format.NCHW, "the format before Ascend's own"
    assert get_npu_format(npu_format_cast(npu_format_cast(x, Format.ND), Format.NCHW)) == Format.NCHW
    with pytest.raises(RuntimeError, match=r"format 77; accepted: UNDEFINED \(-1\)"):
        npu_format_cast(x, 77)


def test_every_refusal_says_what_is_missing() -> None:
    assert all(operator.missing == operator.missing.strip() for operator in OPERATORS.values())
