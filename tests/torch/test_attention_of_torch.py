"""`scaled_dot_product_attention` on the npu takes what it takes on the cpu: the fused kernel, or products and softmax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from anycann.adapters.torch.device import attention as attention_of_npu  # noqa: E402 (behind the check for torch)

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 8), (2, 3, 5, 8), {}),
    "other rows, a scale": ((2, 3, 4, 8), (2, 3, 7, 8), {"scale": 0.3}),
    "causal": ((1, 2, 6, 8), (1, 2, 6, 8), {"is_causal": True}),
    "a mask to add": ((2, 3, 5, 8), (2, 3, 7, 8), {"attn_mask": torch.arange(35.0).reshape(5, 7) / 35}),
    "a mask of booleans": ((2, 3, 5, 8), (2, 3, 5, 8), {"attn_mask": torch.eye(5).bool()}),
    "a mask with a gradient": ((2, 3, 5, 8), (2, 3, 5, 8), {"attn_mask": torch.eye(5).requires_grad_()}),
    "three axes": ((3, 5, 8), (3, 5, 8), {}),
    "groups of heads": ((1, 4, 5, 8), (1, 2, 5, 8), {"enable_gqa": True}),
    "no rows": ((1, 2, 0, 8), (1, 2, 5, 8), {}),
}
LEFT_TO_PRODUCTS = ("groups of heads", "no rows")  # where Python chooses


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("by_python", [False, True], ids=["by torch", "by Python"])
def test_attention_takes_the_cpus_way(case: str, by_python: bool) -> None:
    of_query, of_keys, options = CASES[case]
    tensors = [torch.randn(shape) for shape in (of_query, of_keys, of_keys)]
    host, npu = (_run(device, tensors, options, by_python and device == "npu") for device in ("cpu", "npu"))
    assert npu[0] == host[0] or (by_python and case in LEFT_TO_PRODUCTS)
    for found, expected in zip(npu[1], host[1], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_torch_chooses_without_python() -> None:
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::scaled_dot_product_attention", "PrivateUse1")


def test_python_chooses_where_torch_keeps_its_library_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert not attention_of_npu.torch_chooses()


def test_no_flash_attention_where_the_program_wants_none() -> None:
    x = torch.randn(1, 2, 5, 8, device="npu", requires_grad=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        result = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    assert "Flash" not in type(result.grad_fn).__name__


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_program_that_forbids_products_gets_them_where_nothing_else_applies(dropout: float) -> None:
    x = torch.randn(1, 2, 5, 8, device="npu", requires_grad=True)
    others = [torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION, torch.nn.attention.SDPBackend.CUDNN_ATTENTION]
    with torch.nn.attention.sdpa_kernel(others):
        result = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)
    result.sum().backward()
    if not dropout:
        torch.testing.assert_close(result, torch.nn.functional.scaled_dot_product_attention(x, x, x), rtol=1e-5, atol=1e-5)
    assert x.grad.shape == x.shape
    test_torch_chooses_without_python()  # again, behind the block


def _run(device: str, tensors: list[Any], options: dict[str, Any], by_python: bool) -> tuple[str, list[Any]]:
    """The name of the way back, and the result with the gradients, on the host."""
    given = [tensor.to(device, copy=True).requires_grad_() for tensor in tensors]
    moved = {name: _moved(value, device) for name, value in options.items()}
    run = attention_of_npu.attention if by_python else torch.nn.functional.scaled_dot_product_attention
    result = run(*given, **moved)
    result.square().sum().backward()
    return type(result.grad_fn).__name__, [result.detach().cpu(), *(tensor.grad.cpu() for tensor in given)]


def _moved(value: Any, device: str) -> Any:
    return value.detach().to(device).requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
