"""Steps of optimizers as operators, and the state of floating point."""

from __future__ import annotations

import math

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require

_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_STATUS_WORDS = 8
_WRITTEN = "Tensor(a!) var, Tensor(b!) m, Tensor(c!) v) -> (Tensor(a!), Tensor(b!), Tensor(c!))"


@composed(
    "npu_apply_adam.out(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, "
    f"bool? use_locking, bool? use_nesterov, *, {_WRITTEN}",
    differentiable=False,
)
def apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: torch.Tensor,
    use_locking: bool | None,
    use_nesterov: bool | None,
    *,
    var: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
) -> _Triple:
    """One step of Adam in place: var, and the means m of the gradient and v of its square."""
    g = wide(grad)
    first = wide(m) + (1 - beta1) * (g - wide(m))
    second = wide(v) + (1 - beta2) * (g.square() - wide(v))
    rate = lr * math.sqrt(1 - beta2_power) / (1 - beta1_power) if beta1_power != 1 else math.inf
    direction = first * beta1 + (1 - beta1) * g if use_nesterov else first
    return var.copy_(wide(var) - rate * direction / (second.sqrt() + epsilon)), m.copy_(first), v.copy_(second)


@composed(
    "npu_apply_adam_w.out(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, Scalar beta2, "
    f"Scalar epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize, *, {_WRITTEN}",
    missing="amsgrad, max_grad_norm",
    differentiable=False,
)
def apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: torch.Tensor,
    max_grad_norm: torch.Tensor | None,
    amsgrad: bool | None,
    maximize: bool | None,
    *,
    var: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
) -> _Triple:
    """One step of AdamW in place. The powers are those before this step."""
    if amsgrad or max_grad_norm is not None:
        refuse("npu_apply_adam_w", "amsgrad or max_grad_norm", "what becomes of the largest squares is not documented")
    g = -wide(grad) if maximize else wide(grad)
    first = wide(m) * beta1 + (1 - beta1) * g
    second = wide(v) * beta2 + (1 - beta2) * g.square()
    denominator = (second / (1 - beta2_power * beta2)).sqrt() + epsilon
    decayed = wide(var) * (1 - lr * weight_decay)
    return var.copy_(decayed - lr * first / (1 - beta1_power * beta1) / denominator), m.copy_(first), v.copy_(second)


@composed(
    "npu_bert_apply_adam.out(Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, Tensor grad, Scalar max_grad_norm, "
    f"Scalar global_grad_norm, Scalar weight_decay, Scalar? step_size=None, int adam_mode=0, *, {_WRITTEN}",
    differentiable=False,
)
def bert_apply_adam(
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: torch.Tensor,
    max_grad_norm: float,
    global_grad_norm: float,
    weight_decay: float,
    step_size: float | None = None,
    adam_mode: int = 0,
    *,
    var: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
) -> _Triple:
    """One step of BERT's Adam in place: without correction of the first means, with decay of the weights.

    max_grad_norm above 0 divides the gradient by a finite global_grad_norm above 1. adam_mode 1 (mBART) does not, and takes step_size
    for the step and lr for the decay.
    """
    require(adam_mode == 0 or step_size is not None, "npu_bert_apply_adam", "adam_mode 1 without step_size", "the size of the step")
    clips = adam_mode == 0 and max_grad_norm > 0 and 1 < global_grad_norm < math.inf
    g = wide(grad) / global_grad_norm if clips else wide(grad)
    first = wide(m) * beta1 + (1 - beta1) * g
    second = wide(v) * beta2 + (1 - beta2) * g.square()
    step = (step_size if adam_mode else lr) * first / (second.sqrt() + epsilon) + lr * weight_decay * wide(var)
    return var.copy_(wide(var) - step), m.copy_(first), v.copy_(second)


@composed("npu_alloc_float_status(Tensor self) -> Tensor", differentiable=False)
def alloc_float_status(self: torch.Tensor) -> torch.Tensor:
    """Eight words for the state of floating point."""
    return self.new_zeros(_STATUS_WORDS, dtype=torch.float32)


@composed("npu_get_float_status(Tensor self, int mode=0) -> Tensor", differentiable=False)
def get_float_status(self: torch.Tensor, mode: int = 0) -> torch.Tensor:
    """Eight zeros: infinities and not-a-numbers stay in the tensors here, and no overflow is counted beside them."""
    return self.new_zeros(_STATUS_WORDS, dtype=torch.int32)


@composed("npu_clear_float_status(Tensor self, int mode=0) -> Tensor", differentiable=False)
def clear_float_status(self: torch.Tensor, mode: int = 0) -> torch.Tensor:
    """Eight zeros."""
    return torch.zeros_like(self)


@composed("npu_attention_update(Tensor[] lse, Tensor[] local_out, int update_type) -> (Tensor, Tensor)")
def attention_update(lse: list[torch.Tensor], local_out: list[torch.Tensor], update_type: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(result, log of sums) of attentions (N, D) over parts of the keys, with the logs (N,) of their sums."""
    logs = torch.stack(list(lse)).float()
    whole = torch.logsumexp(logs, 0)
    weights = torch.nan_to_num(torch.exp(logs - whole))
    total = sum(wide(out) * weight[:, None] for out, weight in zip(local_out, weights, strict=True))
    return total.to(local_out[0].dtype), whole if update_type == 1 else torch.zeros_like(whole)
