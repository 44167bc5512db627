"""Activations, gated units and softmax forms."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.fused import Fused, Tensors
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_FAST_GELU = 1.702


@composed("fast_gelu(Tensor self) -> Tensor")
@composed("npu_fast_gelu(Tensor self) -> Tensor")
def fast_gelu(self: torch.Tensor) -> torch.Tensor:
    """x / (1 + exp(-1.702 x)), as on Atlas A2."""
    x = wide(self)
    return (x * torch.sigmoid(_FAST_GELU * x)).to(self.dtype)


@composed("npu_gelu(Tensor self, *, str approximate='none') -> Tensor")
def gelu(self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """GELU, exact or by tanh."""
    return functional.gelu(self, approximate=approximate)


@composed("npu_gelu_mul(Tensor input, *, str approximate='none') -> Tensor")
def gelu_mul(input: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """GELU of the first half of the last axis times the second half."""
    left, right = _halves("npu_gelu_mul", wide(input), -1)
    return (functional.gelu(left, approximate=approximate) * right).to(input.dtype)


@composed("npu_mish(Tensor self) -> Tensor")
def mish(self: torch.Tensor) -> torch.Tensor:
    """x tanh(softplus(x))."""
    return functional.mish(self)


@composed("npu_silu(Tensor self) -> Tensor")
def silu(self: torch.Tensor) -> torch.Tensor:
    """x sigmoid(x)."""
    return functional.silu(self)


@composed("npu_silu_(Tensor(a!) self) -> Tensor(a!)")
def silu_(self: torch.Tensor) -> torch.Tensor:
    """x sigmoid(x), in place."""
    return functional.silu(self, inplace=True)


@composed("npu_swiglu(Tensor self, int dim=-1) -> Tensor")
def swiglu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """silu of the first half of an axis times the second half."""
    (result,) = _SWIGLU((self,), dim)
    return result


@composed("npu_swiglu_backward(Tensor gradOutput, Tensor self, int dim=-1) -> Tensor")
def swiglu_backward(gradOutput: torch.Tensor, self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Gradient of `npu_swiglu` by its input."""
    (gradient,) = _swiglu_gradient(gradOutput, self, dim)
    return gradient


def _swiglu(x: torch.Tensor, dim: int) -> Tensors:
    gate, value = _halves("npu_swiglu", wide(x), dim)
    return ((functional.silu(gate) * value).to(x.dtype),)


def _swiglu_gradient(above: torch.Tensor, x: torch.Tensor, dim: int) -> Tensors:
    gate, value = _halves("npu_swiglu_backward", wide(x), dim)
    above, sigmoid = wide(above), torch.sigmoid(gate)
    by_gate = above * value * sigmoid * (1 + gate * (1 - sigmoid))
    return (torch.cat((by_gate, above * gate * sigmoid), dim).to(x.dtype),)


_SWIGLU = Fused(_swiglu, _swiglu_gradient)


@composed("npu_geglu(Tensor self, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)")
def geglu(self: torch.Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """(product, GELU): GELU of one half of an axis times the other. approximate: 0 exact, 1 tanh."""
    require(approximate in (0, 1), "npu_geglu", f"approximate is {approximate}", "0 (none) or 1 (tanh)")
    left, right = _halves("npu_geglu", wide(self), dim)
    active, other = (left, right) if activate_left else (right, left)
    activated = functional.gelu(active, approximate="tanh" if approximate else "none")
    return (activated * other).to(self.dtype), activated.to(self.dtype)


@composed(
    "npu_clipped_swiglu(Tensor x, *, Tensor? group_index=None, int dim=-1, float alpha=1.702, float limit=7.0, float bias=1.0, "
    "bool interleaved=True) -> Tensor"
)
def clipped_swiglu(
    x: torch.Tensor,
    *,
    group_index: torch.Tensor | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
) -> torch.Tensor:
    """SwiGLU with clipped halves. Rows (all axes before `dim`) behind the sum of `group_index` come out as zeros."""
    axis = dim % x.dim()
    require(x.shape[axis] % 2 == 0, "npu_clipped_swiglu", f"axis {dim} of {sizes(x)}", "an even size")
    rows = wide(x).reshape(x.shape[:axis].numel(), x.shape[axis:].numel())
    half = rows.shape[1] // 2
    gate, value = (rows[:, ::2], rows[:, 1::2]) if interleaved else (rows[:, :half], rows[:, half:])
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    result = gate * torch.sigmoid(alpha * gate) * (value + bias)
    if group_index is not None:
        counted = torch.arange(rows.shape[0], device=x.device) < group_index.sum()
        result = torch.where(counted[:, None], result, result.new_zeros(()))
    return result.to(x.dtype).reshape(*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])


def _halves(operator: str, x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    require(-x.dim() <= dim < x.dim(), operator, f"dim {dim} of {sizes(x)}", f"an axis from {-x.dim()} to {x.dim() - 1}")
    require(x.shape[dim] % 2 == 0, operator, f"axis {dim} of {sizes(x)} cannot be halved", "an even size")
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half), x.narrow(dim, half, half)


@composed("npu_scaled_masked_softmax(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor")
def scaled_masked_softmax(x: torch.Tensor, mask: torch.Tensor, scale: float = 1, fixed_triu_mask: bool = False) -> torch.Tensor:
    """softmax over the last axis of scale x, with -10000 where the mask (True: masked out) is set."""
    if fixed_triu_mask:
        refuse("npu_scaled_masked_softmax", "fixed_triu_mask=True", "it is reserved in the interface; pass the mask")
    scores = (wide(x) * scale).masked_fill(mask.bool(), -10000.0)
    return torch.softmax(scores, -1).to(x.dtype)


@composed(
    "npu_scaled_masked_softmax_backward(Tensor y_grad, Tensor y, Tensor mask, Scalar scale, bool fixed_triu_mask) -> Tensor",
)
def scaled_masked_softmax_backward(
    y_grad: torch.Tensor, y: torch.Tensor, mask: torch.Tensor, scale: float, fixed_triu_mask: bool
) -> torch.Tensor:
    """Gradient of `npu_scaled_masked_softmax` by x, from its result y."""
    if fixed_triu_mask:
        refuse("npu_scaled_masked_softmax_backward", "fixed_triu_mask=True", "it is reserved in the interface; pass the mask")
    above, result = wide(y_grad), wide(y)
    by_scores = result * (above - (above * result).sum(-1, keepdim=True))
    return (by_scores * scale).masked_fill(mask.bool(), 0.0).to(y.dtype)


@composed(
    "npu_masked_softmax_with_rel_pos_bias(Tensor x, Tensor? atten_mask, Tensor relative_pos_bias, float scale_value=1.0, "
    "int inner_precision_mode=0) -> Tensor"
)
def masked_softmax_with_rel_pos_bias(
    x: torch.Tensor,
    atten_mask: torch.Tensor | None,
    relative_pos_bias: torch.Tensor,
    scale_value: float = 1.0,
    inner_precision_mode: int = 0,
) -> torch.Tensor:
    """softmax over the last axis of scale x + mask + bias, as windows of Swin have them."""
    scores = wide(x) * scale_value + wide(relative_pos_bias)
    scores = scores if atten_mask is None else scores + wide(atten_mask)
    return torch.softmax(scores, -1).to(x.dtype)


@composed("npu_attn_softmax_(Tensor(a!) self) -> Tensor(a!)", differentiable=False)
def attn_softmax_(self: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis, in place."""
    return self.copy_(functional.softmax(self, -1))


@composed("npu_attn_softmax_backward_(Tensor(a!) self, Tensor grad_output, Tensor values) -> Tensor(a!)", differentiable=False)
def attn_softmax_backward_(self: torch.Tensor, grad_output: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Gradient by the scores of softmax(scores) @ values, written over the softmax."""
    above = grad_output @ values.mT
    return self.copy_(torch.ops.aten._softmax_backward_data(above, self, -1, self.dtype))


@composed("npu_softmax_cross_entropy_with_logits(Tensor self, Tensor labels) -> Tensor")
def softmax_cross_entropy_with_logits(self: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of each row of logits (N, C) with a row of probabilities: (N,)."""
    operator = "npu_softmax_cross_entropy_with_logits"
    require(self.shape == labels.shape, operator, f"logits and labels of {sizes(self, labels)}", "equal shapes")
    return -(wide(labels) * torch.log_softmax(wide(self), -1)).sum(-1).to(self.dtype)
