"""Activations that another operator names in an attribute (FusedConv, FusedGemm)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anycann.graph.registry import NotLowered
from anycann.te import expression as x
from anycann.te.expression import Expr


def activation(name: str, parameters: Sequence[float]) -> Callable[[Expr], Expr]:
    """The function of one element. Raises NotLowered for a name that is none of ONNX Runtime's fused activations."""
    first, second = (*parameters, 0.0, 0.0)[:2]
    functions: dict[str, Callable[[Expr], Expr]] = {
        "": lambda a: a,
        "Relu": lambda a: x.maximum(a, 0.0),
        "Sigmoid": lambda a: x.unary("sigmoid", a),
        "Tanh": lambda a: x.unary("tanh", a),
        "LeakyRelu": lambda a: x.select(a < 0, a * first, a),
        "Clip": lambda a: x.clamp(a, first, second),
        "HardSigmoid": lambda a: x.clamp(a * first + second, 0.0, 1.0),
    }
    if name not in functions:
        raise NotLowered(f"the fused activation {name!r}")
    return functions[name]
