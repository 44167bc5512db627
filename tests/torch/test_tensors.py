"""Tensors on the npu: where they are, what moves them, and that they share torch's rules for views, in-place changes and errors."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, 5)


@pytest.mark.parametrize("device", ["npu", "npu:0", "npu:1", torch.device("npu", 2), 3])
def test_a_tensor_goes_to_an_npu_and_back(x: torch.Tensor, device: object) -> None:
    there = x.npu(device) if isinstance(device, int) else x.to(device)
    assert there.is_npu
    assert not there.is_cpu
    assert there.device.type == "npu"
    assert torch.equal(there.cpu(), x)
    assert torch.equal(there.to("cpu", torch.float64), x.double())


def test_a_tensor_that_is_there_already_is_not_copied(x: torch.Tensor) -> None:
    there = x.npu()
    assert there.to("npu") is there
    assert there.npu() is there
    assert there.to("npu:1").data_ptr() != there.data_ptr()


def test_factories_make_tensors_on_the_npu() -> None:
    made = [
        torch.empty(3, device="npu"), torch.zeros(2, device="npu:1"), torch.tensor([1, 2], device="npu"), torch.arange(5, device="npu"),
        torch.full((2,), 3.0, device="npu"), torch.eye(2, device="npu"), torch.linspace(0, 1, 3, device="npu"), torch.rand(2, device="npu"),
        torch.randn(2, device="npu"), torch.randint(0, 5, (3,), device="npu"), torch.randperm(4, device="npu"),
        torch.ones(2, device="npu").new_zeros(3), torch.ones_like(torch.ones(2, device="npu")),
    ]  # fmt: skip
    assert {tensor.device.type for tensor in made} == {"npu"}
    assert made[1].device.index == 1
    assert made[3].tolist() == [0, 1, 2, 3, 4]


def test_views_share_memory_and_know_their_base(x: torch.Tensor) -> None:
    there = x.npu()
    view = there[1:3, :2]
    view.add_(1)
    there.t().mul_(2)
    expected = x.clone()
    expected[1:3, :2] += 1
    expected.mul_(2)
    assert torch.equal(there.cpu(), expected)
    assert view._base is there
    assert [piece.shape for piece in there.reshape(2, 10).t().contiguous().chunk(2)] == [(5, 2), (5, 2)]


def test_an_in_place_change_is_counted_and_refused_where_backward_needs_the_old_value(x: torch.Tensor) -> None:
    there = x.npu().requires_grad_()
    squared = (there * 1).pow(2)
    kept = there * 1
    result = kept.exp()
    result.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    squared.sum().backward()
    assert torch.equal(there.grad.cpu(), 2 * x)


def test_out_is_filled_and_resized(x: torch.Tensor) -> None:
    small, right = torch.empty(0, device="npu"), torch.empty(4, 5, device="npu")
    assert torch.add(x.npu(), 1, out=small) is small
    assert torch.equal(small.cpu(), x + 1)
    torch.mul(x.npu(), 3, out=right)
    assert torch.equal(right.cpu(), x * 3)
    torch.add(right, right, out=right)
    assert torch.equal(right.cpu(), x * 6)


def test_normalised_elements_are_written_into_an_out_tensor(x: torch.Tensor) -> None:
    mean, invstd, out = torch.randn(5), torch.rand(5) + 0.5, torch.empty(0, device="npu")
    weight, bias = torch.randn(5), torch.randn(5)
    moved = [tensor.npu() for tensor in (x, weight, bias, mean, invstd)]
    assert torch.batch_norm_elemt(*moved, 1e-5, out=out) is out
    torch.testing.assert_close(out.cpu(), (x - mean) * invstd * weight + bias)


def test_tensors_on_several_devices_are_refused_and_scalars_are_not(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"same device.*npu:0 and cpu!.*aten::add\(npu:0 float32\[4, 5\], cpu float32\[4, 5\]\)"):
        x.npu() + x
    with pytest.raises(RuntimeError, match=r"npu:0 and npu:1!"):
        x.npu() + x.npu(1)
    with pytest.raises(RuntimeError, match=r"npu:0 and npu:1!"):
        torch.cat([x.npu(), x.npu(1)])
    assert (x.npu() + torch.tensor(1.0)).device.type == "npu"
    assert x.npu()[torch.tensor([0, 1])].shape == (2, 5)


def test_an_out_tensor_elsewhere_is_refused(x: torch.Tensor) -> None:
    for out in (torch.empty(0), torch.empty(0, device="npu:1")):
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*npu:0"):
            torch.acosh(x.npu(), out=out)
    lists = [torch.ones(2, device="npu")], [torch.empty(2)]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ops.aten._foreach_abs.out(lists[0], out=lists[1])


def test_a_failing_operator_is_named_with_its_shapes_and_changes_nothing(x: torch.Tensor) -> None:
    there = x.npu()
    with pytest.raises(RuntimeError, match=r"cannot be multiplied.*\nin aten::mm\(npu:0 float32\[4, 5\], npu:0 float32\[4, 5\]\)"):
        there @ there
    with pytest.raises(IndexError, match="aten::"):
        there.index_select(0, torch.tensor([9], device="npu"))
    assert torch.equal(there.cpu(), x)


def test_a_device_that_is_not_there_is_refused(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="Invalid NPU device id 99"):
        x.to("npu:99")
    with pytest.raises(RuntimeError, match="Invalid NPU device id 99"):
        torch.npu.set_device(99)


def test_numpy_needs_a_copy_on_the_cpu_first(x: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="can't convert npu:0 device type tensor to numpy"):
        x.npu().numpy()


def test_copies_pickles_and_checkpoints_keep_the_device(x: torch.Tensor) -> None:
    there = x.npu(1)
    for same in (copy.deepcopy(there), pickle.loads(pickle.dumps(there))):
        assert same.device == there.device
        assert torch.equal(same.cpu(), x)
    file = io.BytesIO()
    torch.save({"a": there, "b": x}, file)
    places = {None: ("npu:1", "cpu"), "cpu": ("cpu", "cpu"), "npu:0": ("npu:0", "npu:0")}
    for place, expected in places.items():
        file.seek(0)
        loaded = torch.load(file, map_location=place, weights_only=True)
        assert (str(loaded["a"].device), str(loaded["b"].device)) == expected
        assert torch.equal(loaded["a"].cpu(), x)


def test_storages_are_on_the_npu(x: torch.Tensor) -> None:
    assert x.npu(1).untyped_storage().device == torch.device("npu:1")
    assert torch.UntypedStorage(16, device="npu").device == torch.device("npu:0")
    parameter = torch.nn.Parameter(torch.zeros(2, 2, device="npu"))
    parameter.data = torch.ones(3, device="npu")
    parameter.data.add_(1)
    assert parameter.tolist() == [2.0, 2.0, 2.0]
    grown = torch.arange(3.0, device="npu")
    grown.resize_(100)
    assert grown[:3].tolist() == [0, 1, 2]
    assert grown.untyped_storage().device == torch.device("npu:0")


def test_conjugates_and_negatives_keep_their_values() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    there = x.npu()
    assert torch.equal((there.conj() + there).cpu(), x.conj() + x)
    assert torch.equal(there.conj().imag.cpu(), x.conj().imag)
    assert torch.equal(torch.view_as_real(there).cpu(), torch.view_as_real(x))


def test_the_text_of_a_tensor_says_where_it_is() -> None:
    assert repr(torch.arange(3.0, device="npu:1")) == "tensor([0., 1., 2.], device='npu:1')"


def test_a_default_device_is_followed() -> None:
    with torch.device("npu"):
        assert torch.nn.Linear(2, 2).weight.is_npu
    with torch.npu.device(3):
        assert torch.empty(1, device="npu").device.index == 3
        assert torch.ones(1).to("npu").device.index == 3
        assert torch.npu.current_device() == 3
    assert torch.npu.current_device() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.float32])
def test_numbers_beside_tensors_keep_the_type_and_the_precision(dtype: torch.dtype) -> None:
    x = torch.tensor([1e4 if dtype.is_floating_point else 7, 3], dtype=dtype)
    for compute in (lambda t: t * 1e-8, lambda t: t.remainder(2), lambda t: t + 2.5, lambda t: t / 3, lambda t: t == 3, lambda t: 2 - t):
        for value in (x, x[0]):
            torch.testing.assert_close(compute(value.npu()).cpu(), compute(value), rtol=0, atol=0)


def test_results_with_several_tensors_are_claimed_each() -> None:
    x = torch.randn(4, 5, device="npu:1")
    values, indices = x.topk(2)
    assert {values.device.index, indices.device.index} == {1}
    mean, deviation = torch.std_mean(x.cpu(), 1)
    torch.testing.assert_close(torch.std_mean(x, 1)[0].cpu(), mean)
    assert torch.native_layer_norm(x, [5], None, None, 1e-5)[2].device.index == 1
    assert deviation.device.type == "cpu"


def test_warnings_and_errors_of_kernels_reach_the_program_once_and_named() -> None:
    x = torch.zeros(2, 2, device="npu")
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # whoever was warned before
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="uint8 condition"):
                torch.where(torch.ones(2, 2, dtype=torch.uint8, device="npu"), x, x + 1)
    finally:
        torch.set_warn_always(before)
    with pytest.raises(RuntimeError, match=r"index 9 is out of bounds[\s\S]*in aten::index_add_\(npu:0 float32\[2, 2\], 0, npu:0"):
        x.index_add_(0, torch.tensor([9], device="npu"), x[:1])
    with pytest.raises(RuntimeError, match=r"in aten::add_\(npu:0 float32\[2, 2\], npu:0 float32\[3\]\)"):
        x.add_(torch.ones(3, device="npu"))
