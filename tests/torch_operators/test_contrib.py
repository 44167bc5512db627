"""torch_npu.contrib: names where public programs import them, and what they compute."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_npu.contrib needs torch")

from anycann.adapters.torch import contrib  # noqa: E402
from tests.torch_operators.box_cases import _some_boxes  # noqa: E402
from tests.torch_operators.region_cases import _aligned, _deformed, _pooled  # noqa: E402
from tests.torch_operators.walk import array  # noqa: E402

DEVICES = ["cpu", "npu"]


@pytest.mark.parametrize("name", sorted(contrib.MODULES))
def test_a_name_is_where_programs_import_it_from(name: str) -> None:
    kind = "function" if name in contrib.FUNCTIONS else "module"
    package = importlib.import_module(f"torch_npu.contrib.{kind}")
    found = getattr(package, name)
    assert getattr(importlib.import_module("torch_npu.contrib"), name) is found
    assert name in package.__all__


@pytest.mark.parametrize(
    "path",
    [
        "module.npu_modules.DropoutWithByteMask",
        "module.ensemble_dropout.NpuCachedDropout",
        "function.nms.npu_multiclass_nms",
        "module.roi_align.ROIAlign",
    ],
)
def test_submodules_have_the_names_too(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(f"torch_npu.contrib.{module}"), name) is getattr(contrib.MODULES[name], name)


def test_a_function_is_not_hidden_by_its_module() -> None:
    importlib.import_module("torch_npu.contrib.function.roll")
    assert importlib.import_module("torch_npu.contrib.function").roll is contrib.functions.roll


def _f(name: str) -> Any:
    return getattr(contrib.MODULES[name], name)


@pytest.mark.parametrize("device", DEVICES)
def test_label_smoothing_spreads_a_part_of_each_label(device: str) -> None:
    logits, classes = torch.randn(5, 7), torch.tensor([0, 6, 2, 3, 3])
    loss = _f("LabelSmoothingCrossEntropy")(7, 0.1)(logits.to(device), classes.to(device))
    labels = np.full((5, 7), 0.1 / 6)
    labels[np.arange(5), classes.numpy()] = 0.9
    log = array(logits) - np.log(np.exp(array(logits)).sum(1, keepdims=True))
    assert loss.item() == pytest.approx(-(labels * log).sum(1).mean(), rel=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_channels_are_taken_from_each_group_in_turn(device: str) -> None:
    x = torch.randn(2, 8, 3, 3).to(device)
    halves = _f("ChannelShuffle")(8)(x[:, :4], x[:, 4:])
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    torch.testing.assert_close(torch.cat(halves, 1), x[:, order])
    torch.testing.assert_close(_f("ChannelShuffle")(8, split_shuffle=False)(x[:, :4], x[:, 4:]), x[:, order])


def test_focus_puts_the_pixels_of_squares_into_channels() -> None:
    focus = _f("Focus")(2, 3).eval()
    x = torch.randn(1, 2, 4, 6)
    parts = [x[:, :, i::2, j::2] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
    wanted = torch.nn.functional.leaky_relu(focus.conv.conv(torch.cat(parts, 1)) / math.sqrt(1 + 1e-5), 0.1)
    torch.testing.assert_close(focus(x), wanted)


def test_two_lstms_read_from_both_ends() -> None:
    layer, x = _f("BiLSTM")(3, 4), torch.randn(5, 2, 3)
    y = layer(x)
    torch.testing.assert_close(y[..., :4], layer.fw_rnn(x)[0])
    torch.testing.assert_close(y[..., 4:], layer.bw_rnn(x.flip(0))[0].flip(0))


@pytest.mark.parametrize("device", DEVICES)
def test_dropped_samples_are_zeros_and_the_others_grow(device: str) -> None:
    layer, x = _f("NpuDropPath")(0.25), torch.ones(4000, 2).to(device)
    y = layer(x)
    torch.testing.assert_close(y.unique().cpu(), torch.tensor([0.0, 1 / 0.75]))
    assert (y[:, 0] == y[:, 1]).all()
    assert (y[:, 0] > 0).float().mean().item() == pytest.approx(0.75, abs=0.05)
    assert layer.eval()(x) is x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["NpuCachedDropout", "DropoutWithByteMask"])
def test_dropout_layers_keep_a_share_and_scale_it(name: str, device: str) -> None:
    layer, x = _f(name)(0.25), torch.ones(100, 100, requires_grad=True, device=device)
    y = layer(x)
    assert (y > 0).float().mean().item() == pytest.approx(0.75, abs=0.03)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
    torch.testing.assert_close(layer.eval()(x), x)


def test_a_cached_dropout_gives_masks() -> None:
    mask = _f("NpuCachedDropout")(0.5)([(2, 3, 100), torch.float32, torch.device("cpu")])
    assert mask.dtype == torch.uint8
    assert mask.numel() * 8 >= 600


def test_a_prefetcher_hands_on_every_batch_on_the_npu() -> None:
    batches = [(torch.full((2,), float(i)), torch.tensor([i])) for i in range(3)]
    prefetcher, seen = _f("Prefetcher")(batches), []
    inputs, targets = prefetcher.next()
    while inputs is not None:
        assert inputs.device.type == targets.device.type == "npu"
        seen.append((inputs.cpu().tolist(), targets.cpu().tolist()))
        inputs, targets = prefetcher.next()
    assert seen == [([float(i)] * 2, [i]) for i in range(3)]


def test_regions_are_aligned_and_pooled() -> None:
    x, rois = torch.randn(2, 8, 7, 6), torch.cat((torch.tensor([[0.0], [1.0]]), _some_boxes(2, 12)), 1)
    aligned = _f("ROIAlign")((3, 2), 0.5, 2)(x, rois)
    np.testing.assert_allclose(array(aligned), _aligned(array(x), array(rois), 0.5, 3, 2, 2, 3), atol=1e-5)
    packed = rois.reshape(1, 2, 5).transpose(1, 2).repeat(2, 1, 1)
    np.testing.assert_allclose(array(_f("PSROIPool")(2, 2, 0.5, 2, 2)(x, packed)), _pooled(array(x), array(packed), 0.5, 2, 2), atol=1e-5)
    with pytest.raises(ValueError, match="PSROIPool: 3 x 2 bins"):
        _f("PSROIPool")(3, 2, 0.5, 2, 2)


def test_a_deformable_convolution_takes_y_and_x_in_turn() -> None:
    layer = _f("ModulatedDeformConv")(4, 6, 3, padding=1, pack=False)
    torch.nn.init.normal_(layer.bias)
    x, offset, mask = torch.randn(1, 4, 5, 5), torch.randn(1, 18, 5, 5), torch.rand(1, 9, 5, 5)
    moved = np.concatenate((array(offset)[:, 1::2], array(offset)[:, ::2], array(mask)), 1)
    wanted = _deformed(array(x), array(layer.weight), moved, array(layer.bias), [3, 3], [1, 1, 1, 1], [1, 1, 1, 1])[0]
    np.testing.assert_allclose(array(layer((x, offset, mask))), wanted, atol=1e-4)


def test_a_deformable_convolution_begins_as_one_with_half_factors() -> None:
    layer, x = _f("DCNv2")(4, 6, 3, padding=1), torch.randn(2, 4, 5, 5, requires_grad=True)
    y = layer(x)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, layer.weight, padding=1) * 0.5, rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_integer_layers_multiply_and_scale(device: str) -> None:
    layer = _f("LinearQuant")(16, 4, output_dtype=torch.float16)
    weight, x = torch.randint(-9, 9, (4, 16), dtype=torch.int8), torch.randint(-9, 9, (3, 16), dtype=torch.int8)
    layer.weight.data, layer.scale.data, layer.bias.data = weight, torch.full((4,), 0.125), torch.arange(4, dtype=torch.int32)
    wanted = (x.double() @ weight.double().T + torch.arange(4)) * 0.125
    torch.testing.assert_close(layer.to(device)(x.to(device)).cpu().double(), wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=r"LinearQuant: input of torch\.float32"):
        layer(x.float().to(device))


def test_weights_by_groups_are_dequantised() -> None:
    layer = _f("LinearWeightQuant")(8, 4, antiquant_group_size=4, antiquant_offset=True)
    weight = torch.randint(-9, 9, (4, 8), dtype=torch.int8)
    layer.weight.data, layer.antiquant_scale.data, layer.antiquant_offset.data = weight, torch.rand(4, 2), torch.rand(4, 2)
    x = torch.randn(3, 8)
    full = (weight.double() + layer.antiquant_offset.double().repeat_interleave(4, 1)) * layer.antiquant_scale.double().repeat_interleave(
        4, 1
    )
    torch.testing.assert_close(layer(x).double(), x.double() @ full.T, rtol=1e-4, atol=1e-4)


def test_an_integer_convolution_scales_its_channels() -> None:
    layer = _f("QuantConv2d")(2, 3, 3, torch.float16, padding=1, bias=False)
    weight, x = torch.randint(-9, 9, (3, 2, 3, 3), dtype=torch.int8), torch.randint(-9, 9, (1, 2, 4, 4), dtype=torch.int8)
    layer.weight.data, layer.scale.data = weight, torch.tensor([0.5, 0.25, 0.125])
    wanted = torch.nn.functional.conv2d(x.double(), weight.double(), padding=1) * torch.tensor([0.5, 0.25, 0.125]).reshape(3, 1, 1)
    torch.testing.assert_close(layer(x).double(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_fairseqs_attention_is_that_of_torch(device: str) -> None:
    ours, theirs = _f("MultiheadAttention")(8, 2), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    weights = [p.weight for p in (ours.q_proj, ours.k_proj, ours.v_proj)]
    biases = [p.bias for p in (ours.q_proj, ours.k_proj, ours.v_proj)]
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat(weights),
            "in_proj_bias": torch.cat(biases),
            "out_proj.weight": ours.out_proj.weight,
            "out_proj.bias": ours.out_proj.bias,
        }
    )
    q, k = torch.randn(3, 4, 8), torch.randn(3, 5, 8)
    y = ours.to(device)(q.reshape(12, 8).to(device), k.reshape(15, 8).to(device), k.reshape(15, 8).to(device), 3, 4, 5)[0]
    torch.testing.assert_close(y.cpu().reshape(3, 4, 8), theirs(q, k, k)[0], rtol=1e-4, atol=1e-5)


def _attention(hidden: Any, mask: Any, wq: Any, wk: Any, wv: Any, bq: Any, bk: Any, bv: Any, scale: float) -> Any:
    q, k, v = (
        (hidden @ w + b).reshape(mask.shape[0], -1, hidden.shape[1] // 64, 64).transpose(0, 2, 1, 3)
        for w, b in ((wq, bq), (wk, bk), (wv, bv))
    )
    scores = q @ k.transpose(0, 1, 3, 2) * scale + mask
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(hidden.shape)


def test_the_fused_attention_of_bert_is_its_formula() -> None:
    tensors = [
        torch.randn(6, 128),
        torch.randn(2, 1, 3, 3),
        *(torch.randn(128, 128) / 9 for _ in range(3)),
        *(torch.randn(128) for _ in range(3)),
    ]
    got = _f("npu_fused_attention")(*tensors, 0.125, 1.0)
    np.testing.assert_allclose(array(got), _attention(*map(array, tensors), 0.125), atol=1e-4)
    gamma, beta = torch.rand(128), torch.rand(128)
    got, norm = _f("npu_fused_attention_with_layernorm")(*tensors, gamma, beta, 0.125, 1.0)
    hidden = array(tensors[0])
    wanted = (hidden - hidden.mean(1, keepdims=True)) / np.sqrt(hidden.var(1, keepdims=True) + 1e-5) * array(gamma) + array(beta)
    np.testing.assert_allclose(array(norm), wanted, atol=1e-4)
    np.testing.assert_allclose(array(got), _attention(wanted, *map(array, tensors[1:]), 0.125), atol=1e-4)
    with pytest.raises(NotImplementedError, match="keep_prob=0"):
        _f("npu_fused_attention")(*tensors)


def test_boxes_are_coded_and_decoded_again() -> None:
    anchors, boxes = _some_boxes(5), _some_boxes(5)
    deltas = _f("npu_bbox_coder_encode_xyxy2xywh")(anchors, boxes, stds=[0.1, 0.1, 0.2, 0.2])
    torch.testing.assert_close(
        _f("npu_bbox_coder_decode_xywh2xyxy")(anchors, deltas, stds=[0.1, 0.1, 0.2, 0.2]), boxes, rtol=1e-3, atol=1e-3
    )
    with pytest.raises(ValueError, match=r"boxes of \(5, 4\) and \(4, 4\)"):
        _f("npu_bbox_coder_encode_yolo")(anchors, boxes[:4], torch.ones(5))
    yolo = _f("npu_bbox_coder_encode_yolo")(anchors, anchors, torch.full((5,), 8))
    torch.testing.assert_close(yolo, torch.tensor([[0.5, 0.5, 0.0, 0.0]]).expand(5, 4))


def test_suppression_of_classes_gives_the_best_boxes() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    scores = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.1, 0.0], [0.2, 0.7, 0.0]])
    found, classes = _f("npu_multiclass_nms")(boxes, scores, 0.3, 0.5, 4)
    torch.testing.assert_close(
        found[:3].float(), torch.tensor([[0.0, 0, 10, 10, 0.9], [20, 20, 30, 30, 0.7], [0, 0, 0, 0, 0]]), rtol=1e-2, atol=1e-2
    )
    assert classes[:2].tolist() == [0.0, 1.0]
    batched, _ = _f("npu_batched_multiclass_nms")(boxes[None], scores[None], 0.3, 0.5, 4)
    torch.testing.assert_close(batched[0], found)


def test_small_functions_are_torchs() -> None:
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(_f("roll")(x, (1, 2), (0, 1)), torch.roll(x, (1, 2), (0, 1)))
    torch.testing.assert_close(_f("matmul_transpose")(x, x), x @ x.mT)
    torch.testing.assert_close(_f("npu_fast_condition_index_put")(x, x < 0, 0.5), torch.where(x < 0, 0.5, x))
    with pytest.raises(TypeError, match=r"condition of torch\.int64"):
        _f("npu_fast_condition_index_put")(x, torch.ones(2, dtype=torch.int64), 0)
    torch.testing.assert_close(_f("Mish")()(x), torch.nn.functional.mish(x))
    torch.testing.assert_close(_f("SiLU")()(x), torch.nn.functional.silu(x))
    with pytest.raises(ValueError, match="p=2"):
        _f("dropout_with_byte_mask")(x, 2)


@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (4, 8, 128, 4)])
def test_masked_scores_become_probabilities(shape: tuple[int, ...]) -> None:
    mask, scores = torch.randn(shape), torch.randn(shape)
    got = _f("fuse_add_softmax_dropout")(False, torch.nn.Identity(), mask, scores, 64, p=0.5)
    torch.testing.assert_close(got, torch.softmax(mask + scores / 8, -1))


def test_overlaps_are_those_of_the_operators() -> None:
    one, other = _some_boxes(5), _some_boxes(3)
    torch.testing.assert_close(_f("npu_iou")(one, other), torch.ops.npu.npu_iou(other, one))
    assert _f("npu_giou")(one, _some_boxes(5)).shape == (5, 1)
    assert _f("npu_ciou")(one.T, one.T).shape == _f("npu_diou")(one.T, one.T).shape == (1, 5)
    with pytest.raises(ValueError, match="equal shapes"):
        _f("npu_giou")(one, other)


def test_batch_norms_count_in_32_bits_and_train_as_others() -> None:
    module = importlib.import_module("torch_npu.contrib.module")
    for axes in (1, 2, 3):
        layer, plain = getattr(module, f"FastBatchNorm{axes}d")(4).npu(), getattr(torch.nn, f"BatchNorm{axes}d")(4)
        x = torch.randn(3, 4, *(5,) * axes)
        for _ in range(2):
            torch.testing.assert_close(layer(x.npu()).cpu(), plain(x))
        assert layer.num_batches_tracked.dtype == torch.int32
        assert layer.num_batches_tracked.item() == 2
        torch.testing.assert_close(layer.running_var.cpu(), plain.running_var)
        plain.load_state_dict(layer.state_dict())
    converted = module.FastSyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm2d(4)))
    assert type(converted[0]) is module.FastSyncBatchNorm
    assert converted[0].num_batches_tracked.dtype == torch.int32


def test_regions_of_large_features_take_no_copy_of_them_each() -> None:
    features = torch.randn(1, 49 * 4, 80, 80).npu().requires_grad_()  # 5 MB; a copy for each region were 10 GB
    corners = torch.rand(2000, 2) * 600
    regions = torch.cat((torch.zeros(2000, 1), corners, corners + 90), 1).npu()
    pooled = torch.ops.npu.npu_ps_roi_pooling(features, regions.T[None].contiguous(), 1 / 8, 7, 4)
    aligned = torch.ops.npu.npu_roi_align(features, regions, 1 / 8, 2, 2, 1, 3)
    assert pooled.shape == (2000, 4, 7, 7)
    (pooled.sum() + aligned.sum()).backward()
    assert features.grad.isfinite().all()
