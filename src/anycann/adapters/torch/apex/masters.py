"""An optimizer that apex prepared: it leaves out a step that overflowed, and at level O2 steps float32 masters of 16-bit parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist

from anycann.adapters.torch.apex.scaling import unscale


class Prepared:
    """What amp knows of one optimizer; lies in its attribute `_amp_stash`."""

    def __init__(self, optimizer: Any, masters: bool, combine_ddp: bool):
        self.optimizer = optimizer
        self.combine_ddp = combine_ddp
        self.skip_next = False
        self._before: list[tuple[Any, Any]] = []  # parameter, gradient of earlier backward passes, unscaled
        self._scaled = False  # whether the gradients are still scaled, since unscaling was put off
        self.pairs: list[tuple[Any, Any]] = []  # 16-bit parameter of the model, its master
        if masters:
            self._make_masters()
        self._step, self._zero_grad = optimizer.step, optimizer.zero_grad
        optimizer._amp_stash = self
        # Methods of the optimizer: torch's schedulers of the learning rate bind the function of `optimizer.step` to it once more.
        optimizer.step, optimizer.zero_grad = MethodType(_step, optimizer), MethodType(_zero_grad, optimizer)

    def _make_masters(self) -> None:
        """Put a float32 copy in the place of each 16-bit parameter; state that is there already goes with it."""
        for group in self.optimizer.param_groups:
            group["params"] = [self._master_of(parameter) for parameter in group["params"]]

    def _master_of(self, parameter: Any) -> Any:
        if not (parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16)):
            return parameter
        master = torch.nn.Parameter(parameter.detach().clone().float())
        if parameter in self.optimizer.state:
            self.optimizer.state[master] = self.optimizer.state.pop(parameter)
        self.pairs.append((parameter, master))
        return master

    def parameters(self) -> Iterator[Any]:
        """What the optimizer steps."""
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def begin_backward(self) -> None:
        """Put gradients of earlier backward passes aside: those that come are scaled."""
        if self._scaled:
            return
        self._before = [(parameter, parameter.grad) for parameter in self.parameters() if parameter.grad is not None]
        for parameter, _ in self._before:
            parameter.grad = None

    def put_off(self) -> None:
        """Leave the gradients scaled: more will be added."""
        self._scaled = True

    def finish_backward(self, scale: float) -> bool:
        """Bring the gradients to what is stepped, divided by `scale` and averaged over ranks if asked; answers whether they overflowed."""
        self._scaled = False
        for parameter, master in self.pairs:
            if parameter.grad is not None:
                master.grad, parameter.grad = parameter.grad.float(), None
        if self.combine_ddp and dist.is_initialized():
            average(list(self.parameters()))
        overflow = unscale(self.parameters(), scale)
        for parameter, gradient in self._before:
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self._before = []
        return overflow

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step, unless the last backward pass overflowed; the model gets what the masters became."""
        if self.skip_next:
            self.skip_next = False
            return None
        result = self._step() if closure is None else self._step(closure)
        with torch.no_grad():
            for parameter, master in self.pairs:
                parameter.copy_(master)
        return result

    def zero_grad(self, *args: Any, **keywords: Any) -> None:
        """Also forgets the gradients of the 16-bit parameters. What is not said is the optimizer's to choose: fused ones keep gradients."""
        self._zero_grad(*args, **keywords)
        for parameter, _ in self.pairs:
            parameter.grad = None


def _step(optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
    return optimizer._amp_stash.step(closure)


def _zero_grad(optimizer: Any, *args: Any, **keywords: Any) -> None:
    optimizer._amp_stash.zero_grad(*args, **keywords)


def average(parameters: list[Any]) -> None:
    """Average the gradients over all ranks, one collective for each dtype: combine_ddp asks for it, without DistributedDataParallel."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        same = [gradient for gradient in gradients if gradient.dtype is dtype]
        flat = torch.cat([gradient.reshape(-1) for gradient in same])
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        for gradient, part in zip(same, flat.split([gradient.numel() for gradient in same]), strict=True):
            gradient.copy_(part.view_as(gradient))
