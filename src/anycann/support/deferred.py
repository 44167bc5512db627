"""A package that another one imports and rarely uses is imported when it is used.

`onnx_ir` imports `sympy` for arithmetic on open sizes, which nothing here asks for: 0.2 of the 0.5 s that importing the compiler took.
While `onnx_ir` is being imported, and only then, stand-ins take the place of what is deferred; `onnx_ir` keeps them, nobody else sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class _StandIn(ModuleType):
    """Has the attributes of the module of its name, which is imported when the first one is asked for."""

    def __getattr__(self, attribute: str) -> Any:
        name = self.__name__
        if sys.modules.get(name) is self:
            del sys.modules[name]
        return getattr(import_module(name), attribute)


class _Deferring:
    """Loads a module as its own loader does, with stand-ins for other modules meanwhile."""

    def __init__(self, loader: Any, deferred: Sequence[str]) -> None:
        self._loader, self._deferred = loader, deferred

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._loader, attribute)  # get_source, get_resource_reader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        stand_ins = [_StandIn(name) for name in self._deferred if name not in sys.modules]
        sys.modules.update((stand_in.__name__, stand_in) for stand_in in stand_ins)
        try:
            self._loader.exec_module(module)
        finally:
            for stand_in in stand_ins:
                if sys.modules.get(stand_in.__name__) is stand_in:
                    del sys.modules[stand_in.__name__]


class _Finder:
    """Finds one package, once."""

    def __init__(self, package: str, deferred: Sequence[str]) -> None:
        self._package, self._deferred = package, deferred

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._package:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Deferring(spec.loader, self._deferred)  # type: ignore[assignment]
                return spec
        return None


def defer(package: str, *deferred: str) -> None:
    """When `package` is imported, let it have stand-ins for the modules `deferred`. Nothing happens if it has been imported already."""
    if package not in sys.modules:
        sys.meta_path.insert(0, _Finder(package, deferred))
