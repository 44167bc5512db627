"""Operators that the engine computes in eager mode: their bodies, traced and compiled for shapes that come often, forward and backward.

A body made of torch's operators passes over memory once for each of them; as one kernel it passes once. Compiling takes a second, so it is
done for calls that were met `OFTEN` times and are large. Until then, for other dtypes and layouts, and under tracing, the body runs as is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
import threading
from typing import Any

import torch
from torch.autograd import forward_ad

from anycann.adapters.torch.device.aliasing import adopt, host_alias
from anycann.support.logging import get_logger

OFTEN = 32  # calls with the same sizes before they are compiled
KEPT = 64  # programs of an operator; the first that was made goes first
REMEMBERED = 1024  # kinds of calls that are counted at a time
LARGE = 1 << 15  # elements of the first tensor, below which calling costs more than computing
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)

Tensors = tuple[torch.Tensor, ...]
Numbers = tuple[Hashable, ...]
Wanted = tuple[bool, ...]
Run = Callable[[list[Any]], list[Any]]
_UNKNOWN = object()


class _Compiled:
    """`body(*tensors, *numbers)`, a tuple of tensors, without gradients."""

    def __init__(self, body: Callable[..., Tensors]):
        self._body = body
        self._met: Counter[Hashable] = Counter()
        self._programs: dict[Hashable, Run | None] = {}  # in the order they were made
        self._lock = threading.RLock()  # of both, where they change

    def find(self, tensors: Tensors, numbers: Numbers, wanted: Wanted = ()) -> Run | None:
        """What computes the `wanted` results (none named: all) for tensors of these shapes, if they came often and the engine can."""
        key = (*((tensor.shape, tensor.dtype) for tensor in tensors), numbers, wanted)
        found = self._programs.get(key, _UNKNOWN)
        if found is not _UNKNOWN:
            return found  # type: ignore[return-value]
        with self._lock:
            if key not in self._programs and self._comes_often(key):
                made = self._compile(tensors, numbers, wanted)
                if len(self._programs) >= KEPT:
                    del self._programs[next(iter(self._programs))]
                self._programs[key] = made
            return self._programs.get(key)

    def _comes_often(self, key: Hashable) -> bool:
        """Count a call, and forget the counts where there are too many or this one is enough."""
        if len(self._met) >= REMEMBERED and key not in self._met:
            self._met.clear()
        self._met[key] += 1
        return self._met[key] >= OFTEN and bool(self._met.pop(key))

    def __call__(self, tensors: Tensors, numbers: Numbers, wanted: Wanted = ()) -> Tensors:
        """The wanted results, where the tensors are."""
        run = self.find(tensors, numbers, wanted)
        if run is None:
            return _chosen(self._body(*tensors, *numbers), wanted)
        if tensors[0].is_cpu:
            return tuple(run(list(tensors)))
        index = tensors[0].get_device()
        return tuple(adopt(result, index) for result in run([host_alias(tensor) for tensor in tensors]))

    def _compile(self, tensors: Tensors, numbers: Numbers, wanted: Wanted) -> Run | None:
        from torch.fx.experimental.proxy_tensor import make_fx

        from anycann.adapters.torch.graph.compiled_graph import threads
        from anycann.adapters.torch.graph.graph_program import compile_graph

        like = [torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu") for tensor in tensors]
        with torch.no_grad():
            traced = make_fx(lambda *given: list(_chosen(self._body(*given, *numbers), wanted)), tracing_mode="fake")(*like)
        traced.graph.eliminate_dead_code()
        program = compile_graph(traced.graph, {}, threads())
        if program.in_pytorch:
            get_logger("torch").info("a fused operator stays with PyTorch: %s", program.in_pytorch)
            return None
        return program.run


def _chosen(results: Tensors, wanted: Wanted) -> Tensors:
    return tuple(result for result, want in zip(results, wanted, strict=True) if want) if wanted else tuple(results)


class Fused:
    """An operator with its gradient. `forward(*tensors, *numbers)` gives a tuple of results.

    `backward(*gradients, *tensors, *numbers)` gives the gradients of the tensors, in their dtypes, from those of the results `graded`.
    """

    def __init__(self, forward: Callable[..., Tensors], backward: Callable[..., Tensors], graded: tuple[int, ...] = (0,)):
        self.body, self.graded = forward, graded
        self.forward, self.backward = _Compiled(forward), _Compiled(backward)

    def __call__(self, tensors: Tensors, *numbers: Hashable) -> Tensors:
        """The results: by the engine where it can and is worth it, else of the body, which torch differentiates."""
        if not _suits(tensors) or self.forward.find(tensors, numbers) is None:
            return self.body(*tensors, *numbers)
        results: Tensors = _WithGradient.apply(self, numbers, *tensors)
        return results


def _suits(tensors: Tensors) -> bool:
    first = tensors[0]
    if first.numel() < LARGE or torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level() is not None:
        return False
    if forward_ad._current_level >= 0:
        return False
    return all(
        type(tensor) in _PLAIN
        and tensor.dtype in _DTYPES
        and tensor.device == first.device
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and tensor.numel()
        for tensor in tensors
    )


class _WithGradient(torch.autograd.Function):
    """The engine's results and gradients. What is asked for beyond the gradients of `graded` results goes by the body."""

    @staticmethod
    def forward(ctx: Any, fused: Fused, numbers: Numbers, *tensors: torch.Tensor) -> Tensors:
        """The results."""
        ctx.fused, ctx.numbers = fused, numbers
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return fused.forward(tensors, numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        """None for what is no tensor or has no gradient."""
        tensors, fused, wanted = ctx.saved_tensors, ctx.fused, ctx.needs_input_grad[2:]
        usual = all((gradient is not None) == (at in fused.graded) for at, gradient in enumerate(gradients))
        given = tuple(gradient.contiguous() for gradient in gradients if gradient is not None)
        if not given:  # what came behind has no gradients
            return (None,) * (2 + len(wanted))
        if torch.is_grad_enabled() or not usual:
            found = _by_body(fused.body, tensors, ctx.numbers, gradients, wanted)
        else:
            found = fused.backward((*given, *tensors), ctx.numbers, wanted)
        rest = iter(found)
        return None, None, *(next(rest) if want else None for want in wanted)


def _by_body(
    body: Callable[..., Tensors], tensors: Tensors, numbers: Numbers, gradients: Sequence[torch.Tensor | None], wanted: Wanted
) -> Tensors:
    """The wanted gradients by torch, which can be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        pairs = [(result, gradient) for result, gradient in zip(body(*tensors, *numbers), gradients, strict=True) if gradient is not None]
        results, above = zip(*pairs, strict=True)
        return torch.autograd.grad(results, _chosen(tensors, wanted), above, create_graph=again, allow_unused=True)
