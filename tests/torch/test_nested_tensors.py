"""Strided nested tensors on the npu compute what they compute on the cpu, and encoders that make them of padded input run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

CASES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": lambda x, weight, bias: x + x,
    "times a number": lambda x, weight, bias: x * 2 / 3.0,
    "activation": lambda x, weight, bias: functional.gelu(x).tanh(),
    "linear": lambda x, weight, bias: functional.linear(x, weight, bias),
    "product": lambda x, weight, bias: x @ x.transpose(1, 2),
    "softmax": lambda x, weight, bias: functional.softmax(x, -1),
    "layer norm": lambda x, weight, bias: functional.layer_norm(x, (8,), weight[0], bias),
    "heads": lambda x, weight, bias: x.reshape(3, -1, 2, 4).transpose(1, 2).contiguous(),
    "clone": lambda x, weight, bias: x.clone(),
    "half of the columns": lambda x, weight, bias: x.chunk(2, -1)[1],
}


def _pieces() -> list[torch.Tensor]:
    return [torch.randn(rows, 8) for rows in (2, 5, 1)]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_agrees_with_the_cpu(name: str) -> None:
    pieces, weight, bias = _pieces(), torch.randn(8, 8), torch.randn(8)
    there = torch.nested.nested_tensor(pieces, device="npu:1")
    assert there.device == torch.device("npu:1")
    wanted = CASES[name](torch.nested.nested_tensor(pieces), weight, bias)
    got = CASES[name](there, weight.npu(1), bias.npu(1))
    assert got.device == torch.device("npu:1")
    for mine, right in zip(got.unbind(), wanted.unbind(), strict=True):
        torch.testing.assert_close(mine.cpu(), right)


def test_gradients_reach_the_pieces_and_the_weights() -> None:
    pieces, layer = _pieces(), nn.Linear(8, 3)
    gradients = []
    for device in ("cpu", "npu"):
        own = [piece.detach().clone().to(device).requires_grad_() for piece in pieces]
        weight = layer.weight.detach().clone().to(device).requires_grad_()
        y = functional.linear(torch.nested.as_nested_tensor(own), weight)
        torch.nested.to_padded_tensor(y, 0.0).square().sum().backward()
        gradients.append([gradient.cpu() for gradient in (weight.grad, *(piece.grad for piece in own)) if gradient is not None])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert len(gradients[0]) == 4


def test_an_encoder_drops_the_padding_it_is_told_of() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        wanted = encoder(x, src_key_padding_mask=padding)
        got = encoder.npu()(x.npu(), src_key_padding_mask=padding.npu())
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), wanted)
