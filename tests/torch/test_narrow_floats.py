"""Operators whose cpu kernel torch has for float32 only, on 16-bit floats: computed in float32 and rounded once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

NARROW = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", NARROW)
def test_a_result_is_that_of_float32_rounded(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 6, 5, 7).to(dtype)
    wide = x.float().requires_grad_()
    narrow = x.npu().requires_grad_()
    expected = torch.nn.functional.avg_pool3d(wide, (2, 2, 3))
    pooled = torch.nn.functional.avg_pool3d(narrow, (2, 2, 3))
    assert pooled.dtype == dtype
    assert torch.equal(pooled.cpu(), expected.to(dtype))
    gradient = torch.randn_like(expected).to(dtype)
    expected.backward(gradient.float())
    pooled.backward(gradient.npu())
    assert wide.grad is not None
    assert narrow.grad is not None
    assert torch.equal(narrow.grad.cpu(), wide.grad.to(dtype))


@pytest.mark.parametrize("dtype", NARROW)
def test_distances_of_narrow_floats_have_gradients(dtype: torch.dtype) -> None:
    points, others = torch.randn(3, 5, 4).to(dtype), torch.randn(3, 2, 4).to(dtype)
    expected = torch.cdist(points.float(), others.float(), p=1.5)
    moved = points.npu().requires_grad_()
    distances = torch.cdist(moved, others.npu(), p=1.5)
    assert torch.equal(distances.cpu(), expected.to(dtype))
    distances.sum().backward()
    assert moved.grad is not None
    assert moved.grad.dtype == dtype


def test_written_arguments_are_written_once_and_keep_their_dtype() -> None:
    x = torch.randn(2, 8, 5, 5, dtype=torch.float16)
    out = torch.empty(0, dtype=torch.float16, device="npu")
    result = torch._C._nn._upsample_bilinear2d_aa(x.npu(), (9, 7), False, out=out)
    assert result is out
    assert torch.equal(out.cpu(), torch._C._nn._upsample_bilinear2d_aa(x.float(), (9, 7), False).half())
    y = torch.randn(4, 5, dtype=torch.float16).npu()
    before = y.cpu()
    assert torch._add_relu_(y, y, alpha=2) is y
    assert torch.equal(y.cpu(), (before.float() * 3).relu().half())


def test_an_operator_that_fails_in_float32_too_says_so() -> None:
    x = torch.ones(1, 2, 3, dtype=torch.float16).npu()
    with pytest.raises(RuntimeError, match=r"avg_pool3d.*npu:0 float16\[1, 2, 3\]"):
        torch.nn.functional.avg_pool3d(x, 2)


def test_the_report_says_what_was_computed_in_float32() -> None:
    program = "import torch, torch_npu\ntorch.nn.functional.avg_pool3d(torch.ones(1, 2, 3, 4, 5).half().npu(), 2)"
    surroundings = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path), "TORCH_NPU_REPORT": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stderr.splitlines() if "float32" in line)
    assert line.startswith("computed in float32 and rounded, for torch's cpu kernel takes no 16-bit floats: aten::avg_pool3d")


def test_operators_that_round_between_steps_are_computed_in_float32() -> None:
    x, places, scalar = torch.randn(1, 2, 9, 7).half(), (torch.rand(1, 4, 5, 2) * 2 - 1).half(), 2.7
    sampled = torch.nn.functional.grid_sample(x.npu(), places.npu(), align_corners=False)
    assert torch.equal(sampled.cpu(), torch.nn.functional.grid_sample(x.float(), places.float(), align_corners=False).half())
    lists = [[torch.randn(33).bfloat16() for _ in range(3)] for _ in range(2)]
    added = torch._foreach_add(*([tensor.npu() for tensor in tensors] for tensors in lists), alpha=scalar)
    wide = torch._foreach_add(*([tensor.float() for tensor in tensors] for tensors in lists), alpha=scalar)
    for result, expected in zip(added, wide, strict=True):
        assert torch.equal(result.cpu(), expected.bfloat16())
    torch._foreach_addcdiv_(added, added, added, 0.3)
    assert added[0].dtype == torch.bfloat16
    halves = [tensor.half() for tensor in lists[0]]
    products = torch._foreach_addcmul([tensor.npu() for tensor in halves], *[[tensor.npu() for tensor in halves]] * 2, scalar)
    for result, expected in zip(products, torch._foreach_addcmul(halves, halves, halves, scalar), strict=True):
        assert torch.equal(result.cpu(), expected)


_OPERANDS = [("mm", ((3, 4), (4, 5))), ("addmv", ((3,), (3, 4), (4,))), ("bmm", ((2, 3, 4), (2, 4, 5)))]


@pytest.mark.parametrize(("operator", "shapes"), _OPERANDS)
def test_products_of_floats_of_two_dtypes_are_in_the_wider_one(operator: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    first, *others = (torch.randn(shape) for shape in shapes)
    product = getattr(torch, operator)(first.half().npu(), *(tensor.npu() for tensor in others))
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.cpu(), getattr(torch, operator)(first.half().float(), *others))


def test_an_lstm_cell_takes_narrower_inputs_than_its_weights_and_trains() -> None:
    cell = torch.nn.LSTMCell(4, 3)
    moved, x = torch.nn.LSTMCell(4, 3).npu(), torch.randn(5, 4).half()
    moved.load_state_dict(cell.state_dict())
    hidden, _ = moved(x.npu())
    expected, _ = cell(x.float())
    torch.testing.assert_close(hidden.cpu().float(), expected, rtol=2e-3, atol=2e-3)
    hidden.float().sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(moved.weight_ih.grad.cpu(), cell.weight_ih.grad, rtol=2e-3, atol=2e-3)


def test_lists_of_tensors_take_scalars_and_copies_from_the_host() -> None:
    lists = [[torch.rand(4) + 1 for _ in range(2)] for _ in range(3)]
    scalars = torch.tensor([0.5, 2.0])
    moved = [[tensor.npu() for tensor in tensors] for tensors in lists]
    found = torch._foreach_addcdiv(*moved, scalars)
    for result, a, b, c, scalar in zip(found, *lists, scalars, strict=True):
        torch.testing.assert_close(result.cpu(), a + scalar * b / c)
    npu, host = torch.zeros(3).npu(), torch.zeros(2, dtype=torch.int64)
    torch._foreach_copy_([npu, host], [torch.ones(3).npu(), torch.ones(2, dtype=torch.int64)])
    assert npu.cpu().tolist() == [1, 1, 1]
    assert host.tolist() == [1, 1]


def test_labels_of_32_bits_count_and_encode_as_they_are() -> None:
    labels = torch.tensor([2, 0, 1], dtype=torch.int32)
    encoded = torch.nn.functional.one_hot(labels.npu(), 4)
    assert encoded.dtype == torch.int32
    assert torch.equal(encoded.cpu(), torch.nn.functional.one_hot(labels.long(), 4).int())
    scores, out = torch.randn(3, 4), torch.empty(0).npu()
    target = torch.tensor([[3, 0, -1, 1]] * 3)
    torch._C._nn.multilabel_margin_loss(scores.npu(), target.int().npu(), out=out)
    torch.testing.assert_close(out.cpu(), torch._C._nn.multilabel_margin_loss(scores, target))


def test_a_softmax_widens_and_its_gradient_narrows() -> None:
    x, above = torch.randn(3, 5).half(), torch.randn(3, 5)
    for forward, backward in ((torch._softmax, torch._softmax_backward_data), (torch._log_softmax, torch._log_softmax_backward_data)):
        y = forward(x.npu(), 1, True)
        assert y.dtype == torch.float32
        expected = forward(x.float(), 1, False)
        torch.testing.assert_close(y.cpu(), expected)
        by_x = backward(above.npu(), y, 1, torch.float16)
        assert torch.equal(by_x.cpu(), backward(above, expected, 1, torch.float32).half())


def test_places_of_32_bits_are_taken_and_put() -> None:
    x, places = torch.randn(3, 4), torch.tensor([7, 0, 11], dtype=torch.int32)
    assert torch.equal(torch.take(x.npu(), places.npu()).cpu(), torch.take(x, places.long()))
    values = torch.randn(3)
    assert torch.equal(x.npu().put_(places.npu(), values.npu()).cpu(), x.clone().put_(places.long(), values))


def test_products_of_many_narrow_numbers_are_rounded_once() -> None:
    x = (torch.rand(15, 7) + 1).half()
    assert torch.equal(torch.prod(x.npu(), 0).cpu(), torch.prod(x.float(), 0).half())


def test_losses_of_16_bits_are_summed_in_float32() -> None:
    scores, target = torch.rand(4000, 5).half(), torch.randint(0, 5, (4000,))
    loss = torch.nn.functional.nll_loss(scores.npu(), target.npu(), reduction="sum")
    assert torch.equal(loss.cpu(), torch.nn.functional.nll_loss(scores.float(), target, reduction="sum").half())


def test_an_out_tensor_of_the_right_number_of_elements_keeps_its_shape() -> None:
    rows = torch.zeros(2, 3).npu()
    torch.logspace(0, 3, 4, base=2, out=rows.narrow(1, 1, 2))
    assert rows.cpu().tolist() == [[0, 1, 2], [0, 4, 8]]
    out = torch.empty(500, dtype=torch.float16).npu()
    torch.normal(mean=torch.full((500,), 2.0, dtype=torch.float16).npu(), std=0.1, out=out)
    assert 1.9 < out.float().mean() < 2.1


def test_convolutions_of_a_library_of_the_host_run_here_too() -> None:
    x, weight, bias = torch.randn(1, 2, 5, 6), torch.randn(3, 2, 2, 2), torch.randn(3)
    moved = torch._nnpack_spatial_convolution(x.npu(), weight.npu(), bias.npu(), [1, 0])
    torch.testing.assert_close(moved.cpu(), torch.nn.functional.conv2d(x, weight, bias, padding=(1, 0)))


@pytest.mark.parametrize("dtype", NARROW)
def test_the_gradient_of_a_word_that_is_everywhere_is_a_sum_of_float32(dtype: torch.dtype) -> None:
    words = torch.zeros(3000, dtype=torch.int64).npu()
    table = torch.zeros(2, 3, dtype=dtype).npu().requires_grad_()
    torch.nn.functional.embedding(words, table).sum().backward()
    assert table.grad is not None
    assert torch.equal(table.grad.cpu(), torch.tensor([[3000.0] * 3, [0.0] * 3]).to(dtype))


def _places(count: int, many: int) -> torch.Tensor:
    return torch.randint(0, count, (many,))


_nn = torch.nn.functional
_ROUNDED_ONCE = {
    "addbmm": (torch.addbmm, torch.randn(5, 6), torch.randn(9, 5, 30), torch.randn(9, 30, 6)),
    "addr": (lambda m, x, y: torch.addr(m, x, y, beta=0.3, alpha=1.7), torch.randn(7, 9), torch.randn(7), torch.randn(9)),
    "bicubic": (lambda x: _nn.interpolate(x, size=(11, 13), mode="bicubic"), torch.randn(2, 3, 7, 6)),
    "bilinear": (_nn.bilinear, torch.randn(6, 9), torch.randn(6, 8), torch.randn(5, 9, 8)),
    "cross": (torch.linalg.cross, torch.randn(9, 3), torch.randn(9, 3)),
    "embedding of everything": (lambda x: x[_places(3, 900).to(x.device)].sum(0), torch.randn(3, 5)),
    "fold": (lambda x: _nn.fold(x, (9, 9), 3, padding=1), torch.randn(2, 18, 81)),
    "layer_norm": (lambda x, w, b: _nn.layer_norm(x, (65,), w, b), torch.randn(4, 65) * 3 + 2, torch.randn(65), torch.randn(65)),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), torch.randn(6, 9) * 9),
    "logit": (torch.logit, torch.rand(99) * 0.9 + 0.05),
    "logits": (lambda x, y: _nn.binary_cross_entropy_with_logits(x, y, reduction="none"), torch.randn(9, 33) * 4, torch.rand(9, 33)),
    "batch_norm": (lambda x, w: _nn.batch_norm(x, None, None, w, w, True), torch.randn(4, 5, 9, 7) * 3 + 2, torch.randn(5)),
    "pooling": (lambda x: _nn.adaptive_avg_pool3d(x, (2, 3, 3)), torch.randn(2, 3, 7, 8, 9)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", _ROUNDED_ONCE)
def test_a_step_of_the_device_rounds_its_result_only(name: str, dtype: torch.dtype) -> None:
    call, *operands = _ROUNDED_ONCE[name]
    narrow = [tensor.to(dtype) for tensor in operands]
    torch.manual_seed(3)
    wide = call(*(tensor.float() for tensor in narrow))
    torch.manual_seed(3)
    torch.testing.assert_close(call(*(tensor.npu() for tensor in narrow)).cpu(), wide.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("kind", ["reflect", "replicate", "unfold", "average", "adaptive"])
def test_gradients_that_come_together_are_added_in_float32(kind: str, dtype: torch.dtype) -> None:
    calls = {
        "reflect": lambda x: _nn.pad(x, (5, 5, 5, 5), "reflect"),
        "replicate": lambda x: _nn.pad(x, (9, 9, 9, 9), "replicate"),
        "unfold": lambda x: x.unfold(2, 5, 1),
        "average": lambda x: _nn.avg_pool2d(x, 5, 1),
        "adaptive": lambda x: _nn.adaptive_avg_pool2d(x, 5),
    }
    x = torch.randn(2, 3, 7, 8).to(dtype)
    wide, narrow = x.float().requires_grad_(), x.npu().requires_grad_()
    expected, result = calls[kind](wide), calls[kind](narrow)
    above = torch.randn_like(expected).to(dtype)
    (by_wide,) = torch.autograd.grad(expected, wide, above.float())
    (by_narrow,) = torch.autograd.grad(result, narrow, above.npu())
    assert torch.equal(by_narrow.cpu(), by_wide.to(dtype))


@pytest.mark.parametrize("dtype", NARROW)
def test_normalisation_keeps_its_statistics_in_float32(dtype: torch.dtype) -> None:
    x, weight, bias, above = ((torch.randn(shape) * 3 + 2).to(dtype) for shape in ((4, 6, 9), (6,), (6,), (4, 6, 9)))
    for call in (
        lambda x, w, b: _nn.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: _nn.group_norm(x, 3, w, b),
        lambda x, w, b: _nn.layer_norm(x.mT, (6,), w, b).mT,
    ):
        wide = [tensor.float().requires_grad_() for tensor in (x, weight, bias)]
        narrow = [tensor.npu().requires_grad_() for tensor in (x, weight, bias)]
        expected = torch.autograd.grad(call(*wide), wide, above.float())
        found = torch.autograd.grad(call(*narrow), narrow, above.npu())
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=2e-3)


@pytest.mark.parametrize("dtype", NARROW)
def test_running_statistics_of_16_bits_are_written(dtype: torch.dtype) -> None:
    norm = torch.nn.BatchNorm1d(5).to(dtype)
    x, wide = (torch.randn(64, 5) * 2 + 3).to(dtype), torch.nn.BatchNorm1d(5)
    moved = torch.nn.BatchNorm1d(5).to(dtype).npu()
    norm(x), moved(x.npu()), wide(x.float())
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(moved, name).cpu(), getattr(wide, name).to(dtype), rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", NARROW)
def test_values_put_at_one_place_are_added_in_float32(dtype: torch.dtype) -> None:
    x, values, places = torch.randn(3, 5).to(dtype), torch.randn(900, 5).to(dtype), _places(3, 900)
    expected = x.float().index_put((places,), values.float(), accumulate=True).to(dtype)
    moved = x.npu()
    given = (places.npu(),), values.npu()
    torch.testing.assert_close(moved.index_put(*given, accumulate=True).cpu(), expected, rtol=torch.finfo(dtype).eps, atol=1e-3)
    assert moved.index_put_(*given, accumulate=True) is moved
    torch.testing.assert_close(moved.cpu(), expected, rtol=torch.finfo(dtype).eps, atol=1e-3)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_gradients_of_repeats_are_added_in_float32(axis: int | None, dtype: torch.dtype) -> None:
    x, times = torch.rand(9, 1, 4).to(dtype), torch.tensor([100])
    wide, narrow = x.float().requires_grad_(), x.npu().requires_grad_()
    expected, result = torch.repeat_interleave(wide, times, axis), torch.repeat_interleave(narrow, times.npu(), axis)
    above = torch.rand_like(expected).to(dtype)
    (by_wide,) = torch.autograd.grad(expected, wide, above.float())
    (by_narrow,) = torch.autograd.grad(result, narrow, above.npu())
    torch.testing.assert_close(by_narrow.cpu(), by_wide.to(dtype), rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", NARROW)
def test_convolutions_with_strides_and_dilations_are_right(dtype: torch.dtype) -> None:
    """oneDNN's kernel for matrix tiles of float16 takes wrong columns for some of them."""
    for stride, dilation in ((2, 2), ((2, 2), (2, 3)), (3, 2)):
        x, weight = torch.randn(1, 4, 5, 7).to(dtype), torch.randn(2, 4, 2, 3).to(dtype)
        options = {"stride": stride, "padding": 1, "dilation": dilation}
        expected = _nn.conv2d(x.float(), weight.float(), **options)
        torch.testing.assert_close(_nn.conv2d(x.npu(), weight.npu(), **options).cpu(), expected.to(dtype), rtol=1e-2, atol=1e-2)
