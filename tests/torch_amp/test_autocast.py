"""Which operators autocast casts on the npu, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from anycann.adapters.torch.amp import lists

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def on_npu(*shape: int, dtype: torch.dtype = SINGLE) -> Any:
    return torch.rand(*shape).add(0.1).to(dtype).npu()


PRODUCTS: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: x @ x,
    "mm": lambda x: torch.mm(x, x),
    "addmm": lambda x: torch.addmm(x, x, x),
    "linear": lambda x: functional.linear(x, x),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "conv1d": lambda x: functional.conv1d(x[None], x[:, :, None]),
    "conv2d": lambda x: functional.conv2d(x[None, None], x[None, None]),
    "conv_transpose2d": lambda x: functional.conv_transpose2d(x[None, None], x[None, None]),
    "prelu": lambda x: functional.prelu(x, x[0, :1]),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "lstm_cell": lambda x: nn.LSTMCell(4, 4).npu()(x)[0],
}
WIDE: dict[str, Callable[[Any], Any]] = {
    "exp": torch.exp,
    "log": torch.log,
    "pow": lambda x: x**2,
    "softmax": lambda x: functional.softmax(x, 1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(1),
    "prod": lambda x: x.prod(),
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: x.norm(),
    "vector_norm": torch.linalg.vector_norm,
    "layer_norm": lambda x: functional.layer_norm(x, (4,)),
    "mse_loss": lambda x: functional.mse_loss(x, x),
    "cross_entropy": lambda x: functional.cross_entropy(x, torch.zeros(4, dtype=torch.int64).npu()),
    "with_logits": lambda x: functional.binary_cross_entropy_with_logits(x, x),
    "cosine_similarity": lambda x: functional.cosine_similarity(x, x),
    "interpolate": lambda x: functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_products_are_computed_in_the_lower_precision(name: str, dtype: torch.dtype) -> None:
    with torch.autocast("npu", dtype=dtype):
        assert PRODUCTS[name](on_npu(4, 4)).dtype is dtype
        assert PRODUCTS[name](on_npu(4, 4, dtype=HALF)).dtype is dtype


@pytest.mark.parametrize("name", WIDE)
def test_wide_ranges_and_sums_are_computed_in_float32(name: str) -> None:
    values = on_npu(4, 4, dtype=HALF)
    with torch.autocast("npu"):
        got = WIDE[name](values)
    assert got.dtype is SINGLE
    assert torch.allclose(got, WIDE[name](values.float()), rtol=1e-3)  # cross_entropy asks for half logarithms, with torch anywhere


def test_operators_of_several_tensors_take_the_widest_dtype() -> None:
    half, single = on_npu(4, dtype=HALF), on_npu(4)
    with torch.autocast("npu"):
        assert torch.cat([half, single]).dtype is SINGLE
        assert torch.stack([half, half]).dtype is HALF
        assert torch.addcmul(single, half, half).dtype is SINGLE
        assert torch.dot(half, single).dtype is SINGLE
        assert torch.atan2(half, half).dtype is HALF


def test_other_operators_keep_their_dtypes() -> None:
    half, single = on_npu(4, dtype=HALF), on_npu(4)
    with torch.autocast("npu"):
        assert (half * 2).dtype is HALF
        assert (half + single).dtype is SINGLE
        assert functional.relu(half).dtype is HALF
        assert half.sum(dtype=torch.float64).dtype is torch.float64
        assert torch.softmax(half, 0, HALF).dtype is HALF


def test_double_precision_host_tensors_and_integers_are_left_alone() -> None:
    with torch.autocast("npu"):
        assert (on_npu(2, 2, dtype=torch.float64) @ on_npu(2, 2, dtype=torch.float64)).dtype is torch.float64
        assert (torch.rand(2, 2) @ torch.rand(2, 2)).dtype is SINGLE
        assert torch.ones(2, dtype=torch.int32).npu().sum().dtype is torch.int64


def test_binary_cross_entropy_of_probabilities_is_refused() -> None:
    with torch.autocast("npu"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        functional.binary_cross_entropy(on_npu(4), on_npu(4))


def test_autocast_can_be_left_and_entered_again() -> None:
    values = on_npu(4, 4)
    with torch.autocast("npu"):
        with torch.autocast("npu", enabled=False):
            assert (values @ values).dtype is SINGLE
        assert torch.is_autocast_enabled("npu")
        assert (values @ values).dtype is HALF
    assert not torch.is_autocast_enabled("npu")
    assert (values @ values).dtype is SINGLE


def test_a_weight_is_cast_once_for_all_its_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, values = nn.Parameter(on_npu(4, 4)), on_npu(4, 4)
    casts = []
    monkeypatch.setattr(torch.Tensor, "to", lambda self, dtype, to=torch.Tensor.to: casts.append(self is weight) or to(self, dtype))
    with torch.autocast("npu"):
        with torch.no_grad():
            functional.linear(values, weight)
        result = functional.linear(values, weight) + functional.linear(values, weight)
    assert sum(casts) == 1
    result.sum().backward()
    assert weight.grad.dtype is SINGLE
    assert torch.allclose(weight.grad, 2 * values.sum(0).expand(4, 4), rtol=1e-2)
    with torch.no_grad():
        weight.zero_()
    with torch.autocast("npu"):
        assert functional.linear(values, weight).abs().max() == 0


def test_without_the_cache_every_use_casts() -> None:
    weight = nn.Parameter(on_npu(4, 4))
    with torch.autocast("npu", cache_enabled=False):
        first = functional.linear(weight.detach(), weight)
        with torch.no_grad():
            weight.zero_()
        assert functional.linear(on_npu(4, 4), weight).abs().max() == 0
    assert first.dtype is HALF


def test_npu_amp_is_torchs_for_the_npu() -> None:
    values = on_npu(4, 4)
    with torch.npu.amp.autocast():
        assert (values @ values).dtype is HALF
    with torch.npu.amp.autocast(dtype=BRAIN):
        assert torch.npu.get_autocast_dtype() is BRAIN
        assert (values @ values).dtype is BRAIN

    @torch.npu.amp.autocast(enabled=True)
    def product(x: Any) -> Any:
        return x @ x

    assert product(values).dtype is HALF


def test_functions_of_ones_own_see_the_dtype_they_ask_for() -> None:
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.npu.amp.custom_fwd(cast_inputs=SINGLE)
        def forward(ctx: Any, x: Any) -> Any:
            seen.append((x.dtype, torch.is_autocast_enabled("npu")))
            return x * 2

        @staticmethod
        @torch.npu.amp.custom_bwd
        def backward(ctx: Any, gradient: Any) -> Any:
            seen.append((gradient.dtype, torch.is_autocast_enabled("npu")))
            return gradient * 2

    values = on_npu(4, dtype=HALF).requires_grad_()
    with torch.npu.amp.autocast():
        result = Double.apply(values)
    result.sum().backward()
    assert seen == [(SINGLE, False), (SINGLE, False)]
    assert values.grad.tolist() == [2.0] * 4


def test_the_lists_are_those_of_torchs_accelerator() -> None:
    names = [name[6:] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    theirs = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCUDA")}
    theirs -= {"cudnn_convolution", "cudnn_convolution_transpose", "binary_cross_entropy"}
    ours = {*lists.LOWER, *lists.SINGLE, *lists.SINGLE_BY_DTYPE, *lists.SINGLE_BY_OVERLOAD, *lists.WIDEST} - {"cat", "stack"}
    assert ours - {"conv2d.padding", "conv1d.padding", "conv3d.padding"} == theirs
