"""`dataclass` with the meaning of Python's own, made in a fifth of its time: importing the compiler makes more than 200 of them.

Python's decorator compiles the text of each method, up to six for a class. Here what runs often is compiled when it is first called, for a
command makes objects of half of the classes and compares fewer, and the rest are shared functions. What collects and inherits fields is
Python's, so `fields`, `replace`, `asdict` and `is_dataclass` work as ever. Accepted options: `frozen` and `eq`; classes that need another
one take Python's own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

_NAMES: dict[type, tuple[str, ...]] = {}


def field_names(kind: type) -> tuple[str, ...]:
    """Of the fields of a dataclass, which `dataclasses.fields` collects anew each time it is asked."""
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return names


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from collections.abc import Callable, Iterator, Sequence
    from dataclasses import MISSING, Field, FrozenInstanceError
    from reprlib import recursive_repr

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> type | Callable[[type], type]:
        """A class of fields, as `dataclasses.dataclass` makes it."""

        def process(made: type) -> type:
            return _process(made, frozen, eq)

        return process if cls is None else process(cls)

    def _process(cls: type, frozen: bool, eq: bool) -> type:
        stated = {name for name in ("__init__", "__repr__", "__eq__", "__setattr__", "__delattr__") if name in vars(cls)}
        if vars(cls).get("__hash__") is not None or ("__hash__" in vars(cls) and "__eq__" not in stated):
            stated.add("__hash__")  # an `__eq__` alone makes it None, which nobody wrote
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # Python writes the signature there, which takes as long as all of this
        inherits = any(dataclasses.is_dataclass(base) for base in cls.__bases__)  # then Python checks that all are frozen or none is
        dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and inherits)(cls)
        cls.__dataclass_params__.frozen = frozen  # which it asks a class that inherits from this one
        fields = dataclasses.fields(cls)
        if any(field.kw_only for field in fields) or any("InitVar" in str(field.type) for field in cls.__dataclass_fields__.values()):
            raise TypeError(f"{cls.__name__} has fields by keyword only or an InitVar; accepted by Python's own dataclass")
        methods = _compared(cls, fields, frozen, eq) | {"__repr__": _representation([f.name for f in fields if f.repr])}
        methods |= _refusals(cls, frozenset(field.name for field in fields)) if frozen else {}
        if frozen and stated & {"__setattr__", "__delattr__"}:
            raise TypeError(f"{cls.__name__} is frozen and says itself how fields are set")
        parameters = ", ".join(("self", *_parameters(fields)))
        methods["__init__"] = _late(cls, "__init__", lambda: _initialiser(cls, fields, parameters, frozen))
        for name, method in methods.items():
            if name not in stated:
                setattr(cls, name, method if method is None else _named(method, cls, name))
        cls.__signature__ = _SIGNATURE
        return cls

    def _named(method: Callable[..., object], cls: type, name: str) -> Callable[..., object]:
        method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
        return method

    def _late(cls: type, name: str, make: Callable[[], Callable[..., object]]) -> Callable[..., object]:
        """A method that takes what `make` gives into its place when it is first called."""

        def complete() -> Callable[..., object]:
            made = _named(make(), cls, name)
            if vars(cls).get(name) is method:
                setattr(cls, name, made)
            return made

        def method(*arguments: object, **named: object) -> object:
            return complete()(*arguments, **named)

        method.complete = complete
        return method

    class _Signature:
        """Says to `inspect.signature` that a class has none, so that it looks at `__init__`, which is there then."""

        def __get__(self, made: object, cls: type) -> object:
            getattr(cls.__init__, "complete", lambda: None)()
            raise AttributeError("__signature__")

    _SIGNATURE = _Signature()

    def _compared(cls: type, fields: Sequence[Field], frozen: bool, eq: bool) -> dict[str, Callable[..., object] | None]:
        if not eq:
            return {}

        def equality() -> Callable[..., object]:
            mine, others = (_tuple(f"{of}.{f.name}" for f in fields if f.compare) for of in ("self", "other"))
            return eval(f"lambda self, other: {mine} == {others} if other.__class__ is self.__class__ else NotImplemented")

        def hashed() -> Callable[..., object]:
            return eval(f"lambda self: hash({_tuple(f'self.{f.name}' for f in fields if (f.compare if f.hash is None else f.hash))})")

        return {"__eq__": _late(cls, "__eq__", equality), "__hash__": _late(cls, "__hash__", hashed) if frozen else None}

    def _initialiser(cls: type, fields: Sequence[Field], parameters: str, frozen: bool) -> Callable[..., object]:
        known: dict[str, object] = {"__name__": cls.__module__, "_set": object.__setattr__, "_MISSING": MISSING}
        known |= {f"_default_{field.name}": field.default for field in fields}
        known |= {f"_make_{field.name}": field.default_factory for field in fields}
        last = " self.__post_init__()" if hasattr(cls, "__post_init__") else " pass"
        exec("\n".join([f"def __init__({parameters}):", *_settings(fields, frozen), last]), known)
        known["__init__"].__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
        return known["__init__"]

    def _tuple(items: Iterator[str]) -> str:
        return f"({''.join(f'{item}, ' for item in items)})"

    def _parameters(fields: Sequence[Field]) -> Iterator[str]:
        """Of `__init__`. A field that a factory makes is missing by default."""
        optional = False
        for name, field in ((field.name, field) for field in fields if field.init):
            required = field.default is MISSING and field.default_factory is MISSING
            if required and optional:
                raise TypeError(f"non-default argument {name!r} follows default argument")
            optional = not required
            yield name if required else f"{name}=_default_{name}"

    def _settings(fields: Sequence[Field], frozen: bool) -> Iterator[str]:
        """Lines that set the fields. One that is no parameter has its default in the class, or from its factory."""
        for name, field in ((field.name, field) for field in fields):
            value = name
            if field.default_factory is not MISSING:
                value = f"_make_{name}() if {name} is _MISSING else {name}" if field.init else f"_make_{name}()"
            elif not field.init:
                continue
            yield f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}"

    def _representation(names: Sequence[str]) -> Callable[..., object]:
        @recursive_repr()
        def represent(self: object) -> str:
            return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        return represent

    def _refusals(cls: type, names: frozenset[str]) -> dict[str, Callable[..., object]]:
        """Fields can't be set or deleted, nor anything else of an object of exactly this class."""

        def set_field(self: object, name: str, value: object) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def delete_field(self: object, name: str) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return {"__setattr__": set_field, "__delattr__": delete_field}
