"""Recurrent layers and cells on the npu: as one operator, forward and backward.

torch puts `lstm`, `gru` and `rnn_*` together from steps for devices that it does not know, a dozen operators a step. Layers and cells of
float32 take generated code (`recurrent_code.py`). Sequences of several lengths, projections and float64 take torch's whole operator for the
cpu on the same memory: autograd records it on aliases of the arguments, and the npu's gradient asks that record, whose values are on the
host's account, not on the npu's. What wants to see the steps (compilers, autocast, captures, derivatives forward, gradients of gradients)
gets torch's composition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import torch

from anycann.adapters.torch.device import report
from anycann.adapters.torch.device.aliasing import adopt, host_alias
from anycann.adapters.torch.device.kernels import kernel_for
from anycann.adapters.torch.device.recurrent_code import Layers, Plan, Steps, code
from anycann.adapters.torch.device.signature import signature_of
from anycann.support.records import dataclass

_LAYERS = tuple(f"{name}.{form}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data"))
_CELLS = ("lstm_cell", "gru_cell")  # torch puts the others together from the same four operators for all devices
_PLAIN = (torch.Tensor, torch.nn.Parameter)  # no subclass: those of compilers and of distributed tensors take torch's way for them
_DTYPES = (torch.float32, torch.float64)  # the cpu rounds 16 bits between its steps
_CELL_BIAS = 4  # position of that argument
_HOST_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_kept: list[Any] = []


def install() -> None:
    """Register the operators above autograd."""
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library = torch.library.Library("aten", "IMPL", key)
        for name in (*_LAYERS, *_CELLS):
            packet, _, overload = name.partition(".")
            kernel = _kernel(getattr(getattr(torch.ops.aten, packet), overload or "default"))
            library.impl(name, report.recorded(f"aten::{name}", kernel, report.HOST_KERNEL) if report.wanted() else kernel)
        _kept.append(library)


def _kernel(op: Any) -> Callable[..., Any]:
    """The npu kernel of one of the operators."""
    signature, without_gradients = signature_of(op), kernel_for(op)
    names = signature.names
    places = tuple(at for at in signature.tensors if names[at] != "batch_sizes")  # those stay on the host
    layers, dropout, train = (names.index(name) if name in names else -1 for name in ("num_layers", "dropout", "train"))
    planned = _planner(op, names)

    def kernel(*args: Any, **keywords: Any) -> Any:
        given = (*args, *(keywords.get(name) for name in names[len(args) :])) if keywords else args
        tensors = _tensors(given, places, signature.lists)
        drops = dropout >= 0 and given[dropout] and given[train] and given[layers] > 1
        if not all(type(tensor) in _PLAIN for tensor in tensors):
            return op.decompose(*args, **keywords)
        if drops or not _whole(tensors):
            return _composed(op, *args, **keywords)
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        plan = planned(given)
        order = None if plan is None else _order(plan, tensors)
        if plan is not None and order is not None:
            results = _compute(plan, order, tensors, _Call.without_tensors(op, given, places, signature.lists) if recorded else None)
        elif recorded:
            results = _Recorded.apply(_Call.without_tensors(op, given, places, signature.lists), *tensors)
        else:
            return without_gradients(*given)
        return tuple(results) if len(results) > 1 else results[0]

    return kernel


def _planner(op: Any, names: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Plan | None]:
    """What says how generated code computes a call by its arguments, or None if it cannot."""
    kind, overload = op._schema.name.removeprefix("aten::"), op._schema.overload_name
    cell = kind.removesuffix("_cell")
    if overload == "data":
        return lambda args: None
    if kind != cell:
        return lambda args: _plan(cell, 1, False, len(args) > _CELL_BIAS and args[_CELL_BIAS] is not None, False, True)
    read = itemgetter(*(names.index(name) for name in ("num_layers", "bidirectional", "has_biases", "batch_first")))
    return lambda args: _plan(cell, *read(args), False)


@cache
def _plan(cell: str, layers: int, bidirectional: bool, biases: bool, batch_first: bool, one_step: bool) -> Plan | None:
    return Plan(cell, layers, 1 + bidirectional, biases, batch_first, one_step) if code(cell) else None


def _order(plan: Plan, tensors: list[Any]) -> Sequence[int] | None:
    """Which of the tensors are x, the states and the weights, in this order; None if code cannot compute with them."""
    if tensors[0].dtype != torch.float32:
        return None
    of_list = plan.one_step and plan.states > 1  # the list of states comes last
    order = (0, len(tensors) - 2, len(tensors) - 1, *range(1, len(tensors) - 2)) if of_list else range(len(tensors))
    x, *rest = (tensors[at] for at in order)
    return order if plan.fits(x, rest[: plan.states], rest[plan.states :]) else None


def _compute(plan: Plan, order: Sequence[int], tensors: list[Any], call: _Call | None) -> Any:
    """The results; `call` is what autograd asks for gradients of gradients, None if it needs none."""
    if call is not None:
        return _Computed.apply(call, plan, order, *tensors)
    with _as_declared():
        return _layers(plan, order, tensors).forward(keep=False)[0]


def _as_declared() -> Any:
    """Products between the steps are of float32, which the code reads by address: the cpu's autocast is not for the npu."""
    return torch._C._ExcludeDispatchKeyGuard(_HOST_AUTOCAST)


def _layers(plan: Plan, order: Sequence[int], tensors: Sequence[Any]) -> Layers:
    x, *rest = (tensors[at] for at in order)
    return Layers(plan, x, rest[: plan.states], rest[plan.states :])


def _composed(op: Any, *args: Any, **keywords: Any) -> Any:
    """torch's composition for devices that it does not know, of C++; that of Python, for compilers, forgets dropout between layers."""
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **keywords)


def _tensors(args: tuple[Any, ...], places: tuple[int, ...], lists: tuple[int, ...]) -> list[Any]:
    """Those at `places` that are given, and those in the lists."""
    found = [args[at] for at in places if at < len(args) and args[at] is not None]
    for at in lists:
        found += args[at]
    return found


def _whole(tensors: list[Any]) -> bool:
    """Whether nobody but autograd looks at the steps, and the cpu computes them as accurately."""
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if torch.autograd.forward_ad._current_level >= 0:
        return False
    kind = tensors[0].dtype, tensors[0].get_device()
    if kind[0] not in _DTYPES or kind[1] < 0 or torch.is_autocast_enabled("npu"):
        return False
    return all((tensor.dtype, tensor.get_device()) == kind for tensor in tensors)


@dataclass(frozen=True)
class _Call:
    """An operator and its arguments: at `places` are tensors, at `lists` lists of them, of which only the lengths are here."""

    op: Any
    args: tuple[Any, ...]
    places: tuple[int, ...]
    lists: tuple[int, ...]

    @classmethod
    def without_tensors(cls, op: Any, args: tuple[Any, ...], places: tuple[int, ...], lists: tuple[int, ...]) -> _Call:
        """Autograd keeps it longer than the tensors that it saved."""
        kept, given = list(args), tuple(at for at in places if at < len(args) and args[at] is not None)
        for at in given:
            kept[at] = None
        for at in lists:
            kept[at] = len(kept[at])
        return cls(op, tuple(kept), given, lists)

    def run(self, tensors: Any, whole: bool = True) -> list[Any]:
        """The results with `tensors` in the places of those that it was given; by torch's composition unless `whole`."""
        rest, args = iter(tensors), list(self.args)
        for at in self.places:
            args[at] = next(rest)
        for at in self.lists:
            args[at] = [next(rest) for _ in range(args[at])]
        result = self.op(*args) if whole else _composed(self.op, *args)
        return list(result) if isinstance(result, tuple) else [result]


class _Computed(torch.autograd.Function):
    """The operator by generated code."""

    @staticmethod
    def forward(ctx: Any, call: _Call, plan: Plan, order: Sequence[int], *tensors: Any) -> Any:
        with _as_declared():
            results, outputs, steps = _layers(plan, order, tensors).forward(keep=True)
        ctx.call, ctx.plan, ctx.order, ctx.counts = call, plan, order, (len(tensors), len(outputs))
        saved = (*tensors, *outputs, *(one for step in steps for one in step))
        ctx.sizes = [None if one is None else one.shape for one in saved]
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        saved, (given, inner) = ctx.saved_tensors, ctx.counts
        if any(size is not None and (one.shape != size or one.dtype != torch.float32) for one, size in zip(saved, ctx.sizes, strict=True)):
            raise RuntimeError("hooks of saved tensors gave others back: of another size or type than those that a recurrent layer saved")
        tensors, outputs, rest = saved[:given], saved[given : given + inner], saved[given + inner :]
        needed, order = ctx.needs_input_grad[3:], ctx.order
        if torch.is_grad_enabled():
            return None, None, None, *_by_composition(ctx.call, tensors, needed, gradients)
        steps = [Steps(*rest[at : at + len(Steps._fields)]) for at in range(0, len(rest), len(Steps._fields))]
        with _as_declared():
            found = _layers(ctx.plan, order, tensors).backward(gradients, outputs, steps, [needed[at] for at in order])
        by_tensors = [None] * given
        for at, one in zip(order, found, strict=True):
            by_tensors[at] = one if needed[at] else None
        return None, None, None, *by_tensors


class _Recorded(torch.autograd.Function):
    """The operator on aliases, which autograd records there. Results share the versions of that record, so it knows who writes them."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Any) -> Any:
        with torch.enable_grad():
            hosts = [host_alias(tensor).requires_grad_(tensor.requires_grad) for tensor in tensors]
            results = call.run(hosts)
        ctx.call, ctx.hosts, ctx.results = call, hosts, results
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(adopt(result.detach(), tensors[0].get_device()) for result in results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[1:]  # raises if one was written since
        if torch.is_grad_enabled():
            return None, *_by_composition(ctx.call, tensors, needed, gradients)
        given = [None if gradient is None else host_alias(gradient) for gradient in gradients]
        keep = torch._C._autograd._get_current_graph_task_keep_graph()
        found = _gradients(ctx.results, ctx.hosts, needed, given, retain_graph=keep)
        if not keep:
            ctx.results = ctx.hosts = None
        index = tensors[0].get_device()
        return None, *_spread([None if one is None else adopt(one, index) for one in found], needed)


def _by_composition(call: _Call, tensors: Any, needed: Any, gradients: Any) -> list[Any]:
    """The gradients by the tensors, which have gradients themselves."""
    views = [tensor.view_as(tensor) for tensor in tensors]  # an argument may be made of another, which is no way back of ours
    return _spread(_gradients(call.run(views, whole=False), views, needed, gradients, create_graph=True), needed)


def _gradients(results: list[Any], tensors: Any, needed: Any, gradients: Any, **options: Any) -> Any:
    """By those of `tensors` that are needed."""
    given = [(result, gradient) for result, gradient in zip(results, gradients, strict=True) if gradient is not None]
    asked = [tensor for tensor, need in zip(tensors, needed, strict=True) if need]
    if not given:
        return [None] * len(asked)
    outputs, with_gradients = zip(*given, strict=True)
    return torch.autograd.grad(outputs, asked, with_gradients, allow_unused=True, **options)


def _spread(found: Any, needed: Any) -> list[Any]:
    rest = iter(found)
    return [next(rest) if need else None for need in needed]
