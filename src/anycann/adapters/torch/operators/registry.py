"""What an operator of `torch.ops.npu` is: schema, body, shapes and gradient in one place, and the table of them all."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from anycann.adapters.torch.device.failures import explained
from anycann.adapters.torch.operators import being_defined
from anycann.support.records import dataclass

Body = Callable[..., Any]
LIBRARIES = {name: torch.library.Library(name, "FRAGMENT") for name in ("npu", "atb")}


@dataclass(frozen=True)
class Operator:
    """One operator.

    `composed`: its body is made of torch's differentiable operators, which give it gradients and shapes on every device. Otherwise it is
    opaque to autograd and to compilers: the body runs on host memory, `shape` tells its results' shapes, `gradient` says how it is
    differentiated, if it is. `differentiable` is False for a composed body whose results have no gradients: integers, masks, numbers that
    are written. `missing` says what of the documented operator is refused.
    """

    schema: str  # of namespace npu, or `atb::...`
    body: Body
    composed: bool
    shape: Body | None = None
    gradient: tuple[Body, Body] | None = None
    differentiable: bool = True
    missing: str = ""

    @property
    def name(self) -> str:
        """Name with overload, as `npu_indexing.out`."""
        return self.schema[: self.schema.index("(")].rpartition("::")[2]

    @property
    def namespace(self) -> str:
        """`npu`, or `atb` for the operators of the transformer acceleration library."""
        return self.schema.partition("::")[0] if "::" in self.schema else "npu"


OPERATORS: dict[str, Operator] = {}


def composed(schema: str, missing: str = "", differentiable: bool = True) -> Callable[[Body], Body]:
    """Registers a body made of operators of torch, which differentiates it unless told otherwise."""

    def register(body: Body) -> Body:
        operator = Operator(schema, body, composed=True, differentiable=differentiable, missing=missing)
        _define(operator, "CompositeImplicitAutograd", _naming(operator))
        return body

    return register


def _naming(operator: Operator) -> Body:
    """The body; errors of operators of torch in it say which call of ours they come from."""

    @wraps(operator.body)
    def call(*given: Any, **options: Any) -> Any:
        try:
            return operator.body(*given, **options)
        except Exception as error:
            packet, _, overload = operator.name.partition(".")
            if packet in str(error):
                raise
            found = getattr(getattr(getattr(torch.ops, operator.namespace), packet), overload or "default")
            told = explained(error, found, given, options)
            if told is error:
                raise
            raise told from error

    return call


def opaque(schema: str, shape: Body, gradient: tuple[Body, Body] | None = None, missing: str = "") -> Callable[[Body], Body]:
    """Registers a body that runs on host memory.

    `shape` takes the same arguments and returns empty tensors of the results' shapes and dtypes; `gradient` is (save, backward) as
    `torch.library.register_autograd` wants them.
    """

    def register(body: Body) -> Body:
        operator = Operator(schema, body, composed=False, shape=shape, gradient=gradient, missing=missing)
        library = _define(operator, "CPU", body)
        name = f"{operator.namespace}::{operator.name}"
        torch.library.register_fake(name, shape, lib=library)
        if gradient is not None:
            save, backward = gradient
            torch.library.register_autograd(name, backward, setup_context=save, lib=library)
        return body

    return register


def _define(operator: Operator, key: str, body: Body) -> torch.library.Library:
    library, packet = LIBRARIES[operator.namespace], operator.name.partition(".")[0]
    being_defined.add(packet)
    try:
        library.define(operator.schema.rpartition("::")[2])
    finally:
        being_defined.discard(packet)
    library.impl(operator.name, body, key)
    OPERATORS[operator.name] = operator
    return library


def require(condition: bool, operator: str, problem: str, accepted: str) -> None:
    """Raises the RuntimeError that torch's own operators raise for wrong tensors, with the operator's name."""
    if not condition:
        raise RuntimeError(f"{operator}: {problem}; accepted: {accepted}")


def refuse(operator: str, argument: str, reason: str) -> NoReturn:
    """What the public documentation does not fix, or what is not there yet, is never computed by guess."""
    raise NotImplementedError(f"{operator}: {argument} is not supported: {reason}")


def refuse_given(operator: str, reason: str, **arguments: Any) -> None:
    """Refuses each of the optional arguments that a caller did give."""
    for name, value in arguments.items():
        if value is not None:
            refuse(operator, name, reason)


def sizes(*tensors: torch.Tensor | None) -> str:
    """Shapes for a message: `(2, 3) float32 and (3,) float32`."""
    return " and ".join(f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in tensors if t is not None)


def with_out(name: str) -> None:
    """Adds the overload `name.out` of a composed operator with one result, which writes it into `out`."""
    operator = OPERATORS[name]
    arguments = operator.schema[len(name) + 1 : operator.schema.rindex(") ->")]
    star = "" if "*" in arguments else " *,"

    def body(*given: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
        result = operator.body(*given, **options)
        if out.shape != result.shape:
            out.resize_(result.shape)
        return out.copy_(result)

    body.__doc__, body.__module__ = f"`{name}`, written into `out`.", operator.body.__module__
    composed(f"{name}.out({arguments},{star} Tensor(a!) out) -> Tensor(a!)", operator.missing, differentiable=False)(body)


def bound(name: str, given: tuple[Any, ...], options: dict[str, Any]) -> SimpleNamespace:
    """The arguments of a call by their names in the schema, with its defaults: for operators of very many arguments."""
    values = dict(_defaults(name))
    values.update(zip(values, given, strict=False))
    values.update(options)
    return SimpleNamespace(**values)


@cache
def _defaults(name: str) -> dict[str, Any]:
    arguments = torch._C.parse_schema(f"npu::{OPERATORS[name].schema.rpartition('::')[2]}").arguments
    return {argument.name: argument.default_value if argument.has_default_value() else None for argument in arguments}
