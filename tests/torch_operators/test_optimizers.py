"""Every NpuFused optimizer against its formula in float64, on the CPU and on the npu."""

from __future__ import annotations

from collections.abc import Callable
import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the optimizers of torch_npu need torch")

from anycann.adapters.torch import optim  # noqa: E402

Array = np.ndarray
Step = Callable[[Array, Array, dict[str, Any], int, dict[str, Any]], Array]
SHAPES = [(4, 3), (5,), (2, 3, 2, 2)]
STEPS = 5


def _adam(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any], decoupled: bool = False) -> Array:
    (b1, b2), decay = o.get("betas", (0.9, 0.999)), o.get("weight_decay", 0.01 if decoupled else 0.0)
    lr = o.get("lr", 1e-3)
    g, p = (g, p * (1 - lr * decay)) if decoupled else (g + decay * p, p)
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    s["top"] = np.maximum(s.get("top", 0), s["v"])
    v = s["top"] if o.get("amsgrad") else s["v"]
    return p - lr / (1 - b1**t) * s["m"] / (np.sqrt(v / (1 - b2**t)) + o.get("eps", 1e-8))


def _adam_w(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    return _adam(p, g, s, t, o, decoupled=True)


def _sgd(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    g = g + o.get("weight_decay", 0) * p
    if o.get("momentum"):
        s["b"] = g if t == 1 else o["momentum"] * s["b"] + (1 - o.get("dampening", 0)) * g
        g = g + o["momentum"] * s["b"] if o.get("nesterov") else s["b"]
    return p - o["lr"] * g


def _adadelta(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    g, rho, eps = g + o.get("weight_decay", 0) * p, o.get("rho", 0.9), o.get("eps", 1e-6)
    s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
    d = np.sqrt(s.get("d", 0) + eps) / np.sqrt(s["v"] + eps) * g
    s["d"] = rho * s.get("d", 0) + (1 - rho) * d * d
    return p - o.get("lr", 1.0) * d


def _rmsprop(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    g, a = g + o.get("weight_decay", 0) * p, o.get("alpha", 0.99)
    s["v"] = a * s.get("v", 0) + (1 - a) * g * g
    s["a"] = a * s.get("a", 0) + (1 - a) * g
    step = g / (np.sqrt(s["v"] - (s["a"] ** 2 if o.get("centered") else 0)) + o.get("eps", 1e-8))
    s["b"] = o.get("momentum", 0) * s.get("b", 0) + step
    return p - o.get("lr", 1e-2) * s["b"]


def _rmsprop_tf(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    a, lr, decay = o.get("alpha", 0.9), o.get("lr", 1e-2), o.get("weight_decay", 0)
    p, g = (p * (1 - decay), g) if o.get("decoupled_decay") else (p, g + decay * p)
    s["v"] = s.get("v", 1) + (1 - a) * (g * g - s.get("v", 1))
    s["a"] = s.get("a", 0) + (1 - a) * (g - s.get("a", 0))
    step = g / np.sqrt(s["v"] + o.get("eps", 1e-10) - (s["a"] ** 2 if o.get("centered") else 0))
    inside, outside = (lr, 1) if o.get("lr_in_momentum", True) else (1, lr)
    s["b"] = o.get("momentum", 0) * s.get("b", 0) + inside * step
    return p - outside * s["b"]


def _lamb(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    b1, b2 = o.get("betas", (0.9, 0.999))
    s["m"], s["v"] = b1 * s.get("m", 0) + (1 - b1) * g, b2 * s.get("v", 0) + (1 - b2) * g * g
    step = s["m"] / (np.sqrt(s["v"]) + o.get("eps", 1e-6)) + o.get("weight_decay", 0) * p
    trust = 1.0 if o.get("adam") else min(np.linalg.norm(p), 10.0) / np.linalg.norm(step)
    return p - o.get("lr", 1e-3) * trust * step


def _adam_p(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    (b1, b2), lr, decay = o.get("betas", (0.9, 0.999)), o.get("lr", 1e-3), o.get("weight_decay", 0)
    s["m"], s["v"] = b1 * s.get("m", 0) + (1 - b1) * g, b2 * s.get("v", 0) + (1 - b2) * g * g
    step = (b1 * s["m"] + (1 - b1) * g if o.get("nesterov") else s["m"]) / (np.sqrt(s["v"] / (1 - b2**t)) + 1e-8)
    ratio = 1.0
    for rows in (p.shape[0], 1) if p.ndim > 1 else ():
        w, d, u = p.reshape(rows, -1), g.reshape(rows, -1), step.reshape(rows, -1)
        cosines = [abs(w[r] @ d[r]) / np.linalg.norm(w[r]) / np.linalg.norm(d[r]) for r in range(rows)]
        if max(cosines) < o.get("delta", 0.1) / np.sqrt(w.shape[1]):
            unit = w / np.linalg.norm(w, axis=1, keepdims=True)
            step = (u - unit * (unit * u).sum(1, keepdims=True)).reshape(p.shape)
            ratio = o.get("wd_ratio", 0.1)
            break
    return p * (1 - lr * decay * ratio) - lr / (1 - b1**t) * step


def _bert(p: Array, g: Array, s: dict[str, Any], t: int, o: dict[str, Any]) -> Array:
    s["m"], s["v"] = 0.9 * s.get("m", 0) + 0.1 * g, 0.999 * s.get("v", 0) + 0.001 * g * g
    step = s["m"] / (np.sqrt(s["v"]) + 1e-6) + o.get("weight_decay", 0.01) * p
    part, warmup = (t - 1) / o.get("t_total", 1), o.get("warmup", -1)
    rates = {
        "warmup_linear": max((part - 1) / (warmup - 1), 0),
        "warmup_cosine": (1 + np.cos(np.pi * part)) / 2,
        "warmup_constant": 1.0,
        "warmup_poly": (1 - part) ** 0.5,
    }
    rate = 1.0 if "t_total" not in o else (part / warmup if part < warmup else rates[o.get("schedule", "warmup_linear")])
    return p - o["lr"] * rate * step


CASES: list[tuple[str, Step, dict[str, Any]]] = [
    ("NpuFusedAdam", _adam, {}),
    ("NpuFusedAdam", _adam, {"lr": 0.1, "weight_decay": 0.1, "amsgrad": True, "betas": (0.8, 0.9)}),
    ("NpuFusedAdamW", _adam_w, {}),
    ("NpuFusedAdamW", _adam_w, {"lr": 0.1, "weight_decay": 0.2, "amsgrad": True}),
    ("NpuFusedSGD", _sgd, {"lr": 0.1}),
    ("NpuFusedSGD", _sgd, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    ("NpuFusedSGD", _sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("NpuFusedAdadelta", _adadelta, {}),
    ("NpuFusedAdadelta", _adadelta, {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("NpuFusedRMSprop", _rmsprop, {}),
    ("NpuFusedRMSprop", _rmsprop, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("NpuFusedRMSpropTF", _rmsprop_tf, {}),
    ("NpuFusedRMSpropTF", _rmsprop_tf, {"momentum": 0.9, "weight_decay": 0.1, "decoupled_decay": True}),
    ("NpuFusedRMSpropTF", _rmsprop_tf, {"momentum": 0.9, "centered": True, "lr_in_momentum": False, "weight_decay": 0.1}),
    ("NpuFusedLamb", _lamb, {"lr": 0.1}),
    ("NpuFusedLamb", _lamb, {"lr": 0.1, "weight_decay": 0.1, "adam": True}),
    ("NpuFusedLamb", _lamb, {"lr": 0.1, "weight_decay": 0.1}),
    ("NpuFusedAdamP", _adam_p, {"lr": 0.1, "weight_decay": 0.1}),
    ("NpuFusedAdamP", _adam_p, {"lr": 0.1, "weight_decay": 0.1, "delta": 5.0, "nesterov": True}),
    ("NpuFusedBertAdam", _bert, {"lr": 0.1, "max_grad_norm": -1}),
    *(
        ("NpuFusedBertAdam", _bert, {"lr": 0.1, "max_grad_norm": -1, "t_total": 6, "warmup": 0.3, "schedule": f"warmup_{name}"})
        for name in ("linear", "cosine", "constant", "poly")
    ),
]


def _ids(case: Any) -> str:
    return f"{case[0]}-{'_'.join(map(str, case[2].values()))}"


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_steps_are_those_of_the_formula(case: tuple[str, Step, dict[str, Any]], device: str) -> None:
    name, step, options = case
    start = [torch.randn(shape) for shape in SHAPES]
    parameters = [torch.nn.Parameter(x.clone().to(device)) for x in start]
    optimizer = getattr(optim, name)(parameters, **options)
    wanted, states = [x.double().numpy() for x in start], [{} for _ in start]
    for count in range(1, STEPS + 1):
        gradients = [torch.randn(shape) for shape in SHAPES]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone().to(device)
        optimizer.step()
        wanted = [step(p, g.double().numpy(), s, count, options) for p, g, s in zip(wanted, gradients, states, strict=True)]
    for parameter, want in zip(parameters, wanted, strict=True):
        np.testing.assert_allclose(parameter.detach().cpu().double().numpy(), want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adadelta", "RMSprop"])
def test_state_dicts_are_those_of_torch(name: str) -> None:
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {}
    theirs_p, ours_p = (torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    theirs, ours = getattr(torch.optim, name)([theirs_p], **options), getattr(optim, f"NpuFused{name}")([ours_p], **options)
    for count in range(4):
        if count == 2:  # from here on ours goes on from their state
            ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
        gradient = torch.randn(3, 4)
        theirs_p.grad, ours_p.grad = gradient.clone(), gradient.clone()
        theirs.step()
        ours.step()
        torch.testing.assert_close(ours_p, theirs_p)
    theirs.load_state_dict(ours.state_dict())


def test_clipping_scales_all_gradients_by_their_common_norm() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    optimizer = optim.NpuFusedSGD(parameters, lr=1.0)
    for p in parameters:
        p.grad = torch.randn_like(p)
    whole = torch.cat([p.grad.flatten() for p in parameters])
    norm = optimizer.clip_grad_norm_fused_(0.5)
    torch.testing.assert_close(norm, whole.norm())
    torch.testing.assert_close(torch.cat([p.grad.flatten() for p in parameters]), whole * 0.5 / whole.norm(), rtol=1e-4, atol=1e-6)


def test_clipping_and_global_norms_belong_to_the_step() -> None:
    p = torch.nn.Parameter(torch.zeros(4))
    p.grad = torch.full((4,), 10.0)
    optim.NpuFusedBertAdam([p], lr=0.1, max_grad_norm=1.0).step()
    torch.testing.assert_close(p.grad, torch.full((4,), 0.5), rtol=1e-5, atol=1e-6)
    q = torch.nn.Parameter(torch.zeros(4))
    q.grad = torch.full((4,), 10.0)
    lamb = optim.NpuFusedLamb([q], use_global_grad_norm=True)
    lamb.step()
    torch.testing.assert_close(lamb.state[q]["exp_avg"], torch.full((4,), 0.05))


def test_zero_grad_keeps_the_gradients_and_refuses_to_drop_them() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = optim.NpuFusedAdam([p])
    p.grad = kept = torch.ones(3)
    optimizer.zero_grad()
    assert p.grad is kept
    assert not kept.any()
    with pytest.raises(ValueError, match="set_to_none"):
        optimizer.zero_grad(set_to_none=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [("NpuFusedLamb", {"lr": -1.0}), ("NpuFusedAdamP", {"betas": (1.0, 0.9)}), ("NpuFusedBertAdam", {"lr": 0.1, "schedule": "no"})],
)
def test_numbers_outside_their_limits_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{name}: .* accepted"):
        getattr(optim, name)([torch.nn.Parameter(torch.ones(1))], **options)


def test_sparse_gradients_are_refused() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="NpuFusedLamb: sparse gradient"):
        optim.NpuFusedLamb([p]).step()
