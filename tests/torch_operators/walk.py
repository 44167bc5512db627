"""What a test of one operator is made of: a call, and the same in numpy and float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from anycann.adapters.torch.operators.all import OPERATORS

CASES: list[Case] = []


@dataclass(frozen=True)
class Case:
    """One call of an operator. `reference` gets the arguments with numpy arrays for tensors (floats as float64) and returns the results,
    None for those that are not compared. `differentiable`: gradients by all float tensors, but
    the arguments `held`, are checked by differences.
    `written`: indices of arguments that the operator writes; their contents are compared behind the results."""

    operator: str
    arguments: tuple[Any, ...]
    reference: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = False
    held: tuple[int, ...] = ()
    tolerance: float = 2e-5
    written: tuple[int, ...] = ()
    check_exactly: bool = False

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, a.shape)) for a in self.arguments if isinstance(a, torch.Tensor))
        options = "_".join(f"{name}={_short(value)}" for name, value in self.options.items())
        return f"{self.operator}-{shapes}-{options}"


def _short(value: Any) -> str:
    return str(mapped(value, lambda tensor: "tensor"))[:24]


def case(operator: str, *arguments: Any, reference: Callable[..., Any], **rest: Any) -> None:
    """Adds a case; see Case."""
    CASES.append(Case(operator, arguments, reference, **rest))


def packet(operator: str) -> Callable[..., Any]:
    """`torch.ops.npu.<operator>`, with overload if it names one."""
    found = getattr(torch.ops, OPERATORS[operator].namespace)
    for part in operator.split("."):
        found = getattr(found, part)
    return found  # type: ignore[return-value]


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The value with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {name: mapped(item, change) for name, item in value.items()}
    return value


def array(tensor: torch.Tensor) -> np.ndarray:
    """As numpy, floats as float64."""
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy().copy()


def results(value: Any) -> Sequence[Any]:
    """The results of a call as a sequence."""
    return value if isinstance(value, (list, tuple)) else (value,)


def randn(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers, fresh in each run (the seed of a failing run is in its message)."""
    return (torch.randn(shape) * scale).to(dtype)


def rand(*shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    """Uniform numbers."""
    return torch.rand(shape) * (high - low) + low


def random_bytes(*shape: int) -> torch.Tensor:
    """int8 of the whole range."""
    return torch.randint(-128, 128, shape, dtype=torch.int8)
