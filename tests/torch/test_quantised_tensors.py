"""Quantised tensors on the npu: made, looked at, moved and made floats again; all else is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:.*quantiz.*", "ignore:.*TypedStorage.*")


def of_tensor(x: Any, dtype: Any) -> Any:
    return torch.quantize_per_tensor(x, 0.05, 3, dtype)


def of_channels(x: Any, dtype: Any) -> Any:
    scales, zeros = torch.tensor([0.05, 0.1, 0.02]).to(x.device), torch.tensor([0, 3, 5]).to(x.device)
    return torch.quantize_per_channel(x, scales, zeros, 1, dtype)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32])
@pytest.mark.parametrize("make", [of_tensor, of_channels])
def test_values_are_those_of_the_host(make: Any, dtype: Any) -> None:
    x = torch.randn(4, 3, 2)
    there, here = make(x.npu(), dtype), make(x, dtype)
    for got, wanted in ((there.dequantize(), here.dequantize()), (there.int_repr(), here.int_repr())):
        assert got.device == torch.device("npu:0")
        torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0)
    moved = there.cpu()
    assert moved.device.type == "cpu"
    assert torch.equal(moved.int_repr(), here.int_repr())
    torch.testing.assert_close(moved.dequantize(), here.dequantize(), rtol=0, atol=0)


def test_scales_and_zeros_are_said() -> None:
    x = torch.randn(2, 3).npu()
    one, many = of_tensor(x, torch.qint8), of_channels(x, torch.qint8)
    assert (one.q_scale(), one.q_zero_point(), one.qscheme()) == (0.05, 3, torch.per_tensor_affine)
    assert (many.q_per_channel_axis(), many.qscheme()) == (1, torch.per_channel_affine)
    assert many.q_per_channel_zero_points().tolist() == [0, 3, 5]
    assert many.q_per_channel_scales().device.type == "npu"


def test_copies_and_views_keep_the_quantiser() -> None:
    x = torch.randn(2, 3)
    here, there = of_tensor(x, torch.quint8), of_tensor(x, torch.quint8).npu(1)
    assert there.device == torch.device("npu:1")
    for change in (lambda q: q.clone(), lambda q: q.view(3, 2), lambda q: q.t(), lambda q: q[:, 1:]):
        changed = change(there)
        assert changed.device == torch.device("npu:1")
        assert torch.equal(changed.cpu().int_repr(), change(here).int_repr())
    assert "scale=0.05" in repr(there)


def test_what_is_not_there_names_operator_and_shapes() -> None:
    q = of_tensor(torch.randn(2, 3).npu(), torch.qint8)
    with pytest.raises(NotImplementedError, match=r"(?s)relu.*quantised.*npu:0 qint8\[2, 3\]"):
        torch.relu(q)
