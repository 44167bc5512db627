"""Each translation against PyTorch: the engine computes the call, alone, and gives what PyTorch gives, in its dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as nn
from torch.utils._pytree import tree_leaves

from anycann.adapters.torch.graph.graph_program import GraphProgram, compile_graph
from anycann.frontends.torch_fx.decomposed import decompositions

aten = torch.ops.aten


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape) * 2).to(dtype)


def i(*shape: int, high: int = 5) -> torch.Tensor:
    return torch.randint(0, high, shape)


def program_of(function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> GraphProgram:
    module = make_fx(torch.func.functionalize(function), decomposition_table=decompositions(), tracing_mode="fake")(*args)
    module.graph.eliminate_dead_code()
    output = module.graph.output_node()
    output.args = (tree_leaves(output.args[0]),)
    return compile_graph(module.graph, {}, 1)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "promotion": (lambda a, b: (a + b, a * 2.5, b / 2, a - 1, 3 - b, b + 1), (f(3, 4), i(4))),
    "comparison": (lambda a, b: (a < b, a == 1, b != a, (a > 0) == (b > 1), a >= 0.5), (f(3, 4), i(4))),
    "quotients": (
        lambda a, b: (a // b, torch.div(a, b, rounding_mode="trunc"), a % b, torch.fmod(a, b), a // 2, a % -3), (f(5, 6), f(5, 6)),
    ),
    "quotients of integers": (
        lambda a, b: (a // b, torch.div(a, b, rounding_mode="trunc"), a % b, torch.fmod(a, b), a / b), (i(40) - 2, i(40) + 1),
    ),
    "quotients of bfloat16": (
        lambda a, b: (a // b, torch.div(a, b, rounding_mode="floor")), (f(200, dtype=torch.bfloat16), f(200, dtype=torch.bfloat16)),
    ),
    "powers": (lambda a: (a**2, a**3, (a * a) ** 0.5, a**-1, torch.pow(a.abs(), 1.7), 2.0**a), (f(3, 4),)),
    "activations": (
        lambda a: (a.relu(), nn.gelu(a), nn.gelu(a, approximate="tanh"), nn.silu(a), nn.mish(a), nn.hardswish(a), nn.hardsigmoid(a),
                   nn.leaky_relu(a, 0.2), nn.elu(a, 0.7), nn.softplus(a), nn.relu6(a), a.clamp(-1, 0.5), a.clamp(min=0)), (f(3, 20),),
    ),
    "functions": (
        lambda a: (a.exp(), a.abs().log(), a.abs().sqrt(), (a.abs() + 1).rsqrt(), a.sin(), a.erf(), a.tanh(), a.floor(), a.round(),
                   a.trunc(), a.sign(), a.isnan(), torch.exp2(a), a.square(),
                   (a.abs() * 1e-4).log1p(), (a * 1e-4).expm1(), a.expm1()), (f(3, 20),),
    ),
    "logic": (lambda a, b: ((a > 0) & (b > 1), a.logical_not(), ~b, b ^ 3, (a > 0) | (b == 0), b * (a > 0)), (f(9), i(9))),
    "choice": (lambda a, b: (torch.where(a > 0, a, b), a.masked_fill(a > 0, 1.5), torch.where(a > 0, a, 0)), (f(3, 4), i(3, 4))),
    "casts": (lambda a: (a.int(), a.to(torch.float16), a.bool(), a.double(), a.to(torch.uint8).float()), (f(3, 4).abs(),)),
    "shapes": (
        lambda a: (a.reshape(6, 4) + 0, a.permute(2, 0, 1) * 1, a[:, 1:3, ::2] + 0, a[1] * 2, a.flip(0, 2), a.roll((1, -1), (0, 2)),
                   a.unsqueeze(1).expand(2, 5, 3, 4) + 1, a.repeat(2, 1, 1, 2), nn.pad(a, (1, 2, 0, 1), value=3.0)), (f(2, 3, 4),),
    ),
    "joins": (lambda a, b: (torch.cat([a, b]), torch.stack([a, b], -1), torch.tril(a), torch.triu(b, 1)), (f(3, 4), f(3, 4))),
    "parts": (lambda a: [part * 2 for part in (*a.split([1, 3], 1), *a.unbind(0), *a.chunk(2, 1))], (f(3, 4),)),
    "parts replaced": (
        lambda a, b: (torch.slice_scatter(a, b, 1, 1, 3), torch.select_scatter(a, b[:, 0], 1, 2)), (f(3, 4), f(3, 2)),
    ),
    "made from nothing": (
        lambda a: (torch.arange(5) + a.long(), torch.arange(1, 3, 0.5) * a[:4], torch.full((2, 5), 7) + a, torch.zeros_like(a) + a,
                   torch.eye(5) * a), (f(5),),
    ),
    "reductions": (
        lambda a: (a.sum(), a.sum(1), a.mean((0, 2), keepdim=True), a.amax(1), a.amin((0, 1)), a.max(), a.prod(2), a.logsumexp(1),
                   (a > 0).any(1), (a > -3).all(), a.var(1), a.std((0, 2), correction=0), a.norm(), a.argmax(1), a.argmin()), (f(3, 4, 5),),
    ),
    "reductions of integers": (lambda a: (a.sum(1), a.max(1).values, a.any(0), a.cumsum(1)), (i(3, 4),)),
    "largest with places": (lambda a: (*a.max(1), *a.min(0), *a.topk(2, -1)), (f(3, 7),)),
    "along an axis": (lambda a: (a.softmax(1), a.log_softmax(-1), a.cumsum(0), a.cumprod(1)), (f(3, 7),)),
    "products": (lambda a, b, c: (a @ b, torch.addmm(c, a, b, beta=0.5, alpha=2), b @ c, b.t() @ a.t()), (f(3, 4), f(4, 5), f(5))),
    "products of stacks": (lambda a, b, c: (a @ b, torch.baddbmm(c, a, b, alpha=0.5)), (f(2, 3, 4), f(2, 4, 5), f(2, 3, 5))),
    "convolutions": (
        lambda a, w, b, t: (nn.conv2d(a, w, b, 2, 1), nn.conv2d(a, w, None, 1, 2, 2), nn.conv_transpose2d(a, t, None, 2, 1, 1)),
        (f(2, 3, 9, 8), f(4, 3, 3, 3), f(4), f(3, 5, 3, 3)),
    ),
    "convolutions of rows": (lambda a, w: nn.conv1d(a, w, None, 1, 1, 1, 2), (f(2, 4, 9), f(6, 2, 3))),
    "normalisations": (
        lambda a, w, b: (nn.layer_norm(a, (6,), w, b), nn.layer_norm(a, (4, 6)), nn.group_norm(a.permute(0, 2, 1), 2, w, b),
                         nn.batch_norm(a.permute(0, 2, 1), b, w.abs(), w, b)), (f(3, 4, 6), f(6), f(6)),
    ),
    "pooling": (
        lambda a: (nn.max_pool2d(a, 3, 2, 1), nn.avg_pool2d(a, 2), nn.avg_pool2d(a, 3, 2, 1, count_include_pad=False),
                   nn.adaptive_avg_pool2d(a, 1), nn.adaptive_avg_pool2d(a, (3, 5)), *nn.max_pool2d(a, 2, return_indices=True)),
        (f(2, 3, 9, 8),),
    ),
    "resizing": (
        lambda a: (nn.interpolate(a, size=(6, 10)), nn.interpolate(a, size=(7, 9), mode="bilinear"),
                   nn.interpolate(a, size=(7, 9), mode="bilinear", align_corners=True), nn.pixel_shuffle(a, 2)), (f(1, 4, 3, 5),),
    ),
    "indices": (
        lambda a, n, m: (a[n], a[:, m], a.gather(1, m[None].expand(5, 2)), a.index_select(0, n), a[n[:2], m], nn.embedding(n, a),
                         a.scatter(1, m[None].expand(5, 2), 3.0), a.scatter_add(0, n[:3, None].expand(3, 4), a[:3])),
        (f(5, 4), i(6), i(2, high=4)),
    ),
    "indices written": (
        lambda a, n, b: (a.index_put((n,), b), a.index_put((n,), b, accumulate=True)), (f(5, 4), torch.tensor([3, 0, 4]), f(3, 4)),
    ),
    "losses": (
        lambda a, n, w: (nn.cross_entropy(a, n), nn.cross_entropy(a, n, w, reduction="sum"), nn.cross_entropy(a, n, ignore_index=2),
                         nn.nll_loss(a, n, reduction="none"), nn.mse_loss(a, a * 2), nn.binary_cross_entropy_with_logits(a, a.sigmoid())),
        (f(6, 5), i(6), f(5).abs()),
    ),
    "attention": (
        lambda q, k, m: (nn.scaled_dot_product_attention(q, k, k), nn.scaled_dot_product_attention(q, q, q, is_causal=True),
                         nn.scaled_dot_product_attention(q, k, k, m, scale=0.3)), (f(2, 3, 5, 8), f(2, 3, 7, 8), f(2, 1, 5, 7)),
    ),
    "strides that nothing moves along": (
        lambda x: (x * 2).mean((2, 3), True).as_strided((2, 3, 1, 1), (3, 1, 3, 7)) + 1, (f(2, 3, 4, 5),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_engine_computes_what_torch_computes(name: str) -> None:
    function, args = CASES[name]
    program = program_of(function, args)
    assert not program.in_pytorch
    for got, wanted in zip(program.run(list(args)), tree_leaves(function(*args)), strict=True):
        assert got.dtype == wanted.dtype
        rtol = 1e-2 if wanted.dtype in (torch.float16, torch.bfloat16) else 1e-4
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=rtol / 10)


BACKWARD: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "activations": (
        lambda a: sum(act(a) for act in (torch.relu, nn.gelu, nn.silu, nn.mish, nn.hardswish, nn.hardsigmoid, torch.sigmoid, torch.tanh,
                                         nn.softplus, nn.elu, nn.leaky_relu, nn.relu6)), (f(3, 20),),
    ),
    "gelu by tanh": (lambda a: nn.gelu(a, approximate="tanh"), (f(3, 20),)),
    "softmax": (lambda a: a.softmax(1) + a.log_softmax(0), (f(3, 7),)),
    "convolution": (lambda a, w, b: nn.conv2d(a, w, b, 2, 1), (f(2, 3, 9, 8), f(4, 3, 3, 3), f(4))),
    "convolution of groups": (lambda a, w: nn.conv2d(a, w, None, 1, 2, 2, 2), (f(2, 4, 9, 8), f(6, 2, 3, 3))),
    "transposed convolution": (lambda a, w: nn.conv_transpose2d(a, w, None, 2, 1, 1), (f(2, 3, 5, 6), f(3, 4, 3, 3))),
    "layer norm": (lambda a, w, b: nn.layer_norm(a, (6,), w, b), (f(3, 4, 6), f(6), f(6))),
    "group norm": (lambda a, w, b: nn.group_norm(a, 2, w, b), (f(3, 6, 5), f(6), f(6))),
    "rms norm": (lambda a, w: nn.rms_norm(a, (6,), w), (f(3, 4, 6), f(6))),
    "batch norm": (lambda a, w, b: nn.batch_norm(a, None, None, w, b, training=True), (f(4, 6, 5), f(6), f(6))),
    "pooling": (
        lambda a: nn.max_pool2d(a, 3, 2, 1).sum((2, 3)) + nn.avg_pool2d(a, 2).sum((2, 3)) + nn.adaptive_avg_pool2d(a, 3).sum((2, 3)),
        (f(2, 3, 9, 8),),
    ),
    "parts": (lambda a: a[:, 1:3] * a[:, 0:1] + a.select(1, 2)[:, None], (f(3, 4),)),
    "loss": (lambda a: nn.cross_entropy(a, torch.arange(5), label_smoothing=0.1), (f(5, 6),)),
    "embedding": (lambda a: nn.embedding(torch.tensor([1, 0, 1, 3]), a, padding_idx=0), (f(5, 4),)),
}  # fmt: skip


def test_strides_that_show_other_elements_are_left_to_pytorch() -> None:
    x = torch.randn(3, 4)
    program = program_of(lambda x: (x * 2).as_strided((4, 3), (1, 4)) + 1, (x,))
    assert len(program.in_pytorch) == 1
    torch.testing.assert_close(program.run([x])[0], (x * 2).T + 1)


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_are_those_of_torch(name: str) -> None:
    function, args = BACKWARD[name]

    gradients = torch.func.grad(lambda *given: function(*given).square().sum(), argnums=tuple(range(len(args))))
    program = program_of(gradients, args)
    assert not program.in_pytorch
    for got, wanted in zip(program.run(list(args)), gradients(*args), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_statistics_of_16_bits_are_typed_as_in_torch() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return aten.native_group_norm(x, w, w, 2, 6, 20, 3, 1e-5)

    args = (f(2, 6, 4, 5, dtype=torch.bfloat16), f(6, dtype=torch.bfloat16))
    for got, wanted in zip(program_of(function, args).run(list(args)), function(*args), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
