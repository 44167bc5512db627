"""`dataclass` with the meaning of Python's own, made in a third of its time: importing the compiler makes more than 200 of them.

Python's decorator compiles the text of each method alone, up to six for a class. Here what runs often is compiled at once, and the rest are
shared functions. What collects and inherits fields is Python's, so `fields`, `replace`, `asdict` and `is_dataclass` work as ever. Accepted
options: `frozen` and `eq`; classes that need another one take Python's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from collections.abc import Callable, Iterator, Sequence
    import dataclasses
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
        methods = _compiled(cls, fields, frozen, eq) | {"__repr__": _representation([f.name for f in fields if f.repr])}
        if frozen:
            methods |= _refusals(cls, frozenset(field.name for field in fields))
        if frozen and stated & {"__setattr__", "__delattr__"}:
            raise TypeError(f"{cls.__name__} is frozen and says itself how fields are set")
        for name, method in methods.items():
            if name not in stated:
                setattr(cls, name, method)
                if method is not None:
                    method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
        return cls

    def _compiled(cls: type, fields: Sequence[Field], frozen: bool, eq: bool) -> dict[str, Callable[..., object] | None]:
        """The methods that run often."""
        known: dict[str, object] = {"__name__": cls.__module__, "_set": object.__setattr__, "_MISSING": MISSING}
        known |= {f"_default_{field.name}": field.default for field in fields}
        known |= {f"_make_{field.name}": field.default_factory for field in fields}
        lines = [f"def __init__({', '.join(('self', *_parameters(fields)))}):", *_settings(fields, frozen)]
        lines.append(" self.__post_init__()" if hasattr(cls, "__post_init__") else " pass")
        if eq:
            mine, others = (_tuple(f"{of}.{f.name}" for f in fields if f.compare) for of in ("self", "other"))
            lines += ["def __eq__(self, other):", f" return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented"]
        if eq and frozen:
            hashed = _tuple(f"self.{f.name}" for f in fields if (f.compare if f.hash is None else f.hash))
            lines += ["def __hash__(self):", f" return hash({hashed})"]
        exec("\n".join(lines), known)
        known["__init__"].__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
        names = ["__init__", *(["__eq__", "__hash__"] if eq else [])]
        return {name: known.get(name) for name in names}

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
