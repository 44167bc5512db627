"""Which aten operators have a translation. Every family of operators adds its own; what is not here runs in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
import importlib
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_ir as ir

if TYPE_CHECKING:
    from anycann.frontends.torch_fx.builder import Builder

DEVICE = "anycann"  # the domain of the operators that ONNX does not have
FAMILIES = (
    "creation", "elementwise", "backward", "indexing", "losses", "normalization", "pooling", "products", "reductions", "shapes",
)  # fmt: skip


class NotTranslated(Exception):
    """This call has no translation; the text says why. It runs in PyTorch."""


class Call:
    """One call of the aten operator `name`: its arguments by their names in the schema, defaults filled in, and what it results in.

    An argument is what FX has there: a node, a number, a list. `result` is the meta value: a fake tensor, or a tuple of them. `used` are
    the numbers of the results that are read.
    """

    def __init__(self, name: str, arguments: dict[str, Any], result: Any, used: frozenset[int]):
        self.name = name
        self._arguments = arguments
        self.result = result
        self.used = used

    def __getattr__(self, name: str) -> Any:
        try:
            return self._arguments[name]
        except KeyError:
            raise AttributeError(f"the operator has no argument {name!r}; it has {', '.join(self._arguments)}") from None


Result: TypeAlias = "ir.Value | Sequence[ir.Value | None]"
Translation: TypeAlias = "Callable[[Builder, Call], Result]"

_translations: dict[str, Translation] = {}


def translation(*targets: str) -> Callable[[Translation], Translation]:
    """Define the translation of aten operators: `@translation("add.Tensor")`; `aten.` is added to names without a namespace."""

    def define(translate: Translation) -> Translation:
        for target in targets:
            name = target if target.count(".") == 2 else f"aten.{target}"
            assert name not in _translations, f"{name} is translated twice"
            _translations[name] = translate
        return translate

    return define


@lru_cache(maxsize=1)
def translations() -> dict[str, Translation]:
    """All translations by the name of the operator and its overload: "aten.add.Tensor"."""
    for family in FAMILIES:
        importlib.import_module(f"anycann.frontends.torch_fx.{family}")
    return _translations
