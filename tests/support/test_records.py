"""The dataclass of this package beside Python's own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
import copy
import dataclasses
from dataclasses import FrozenInstanceError, field
import inspect
from pathlib import Path
import pickle
import re
from typing import Any, ClassVar, Generic, TypeVar
import weakref

import pytest

from anycann.support import records
from anycann.support.records import dataclass

T = TypeVar("T")


def _classes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """The same classes, made by either decorator."""

    @dataclass(frozen=True)
    class Size:
        rows: int
        columns: int = 3
        unit: ClassVar[str] = "m"

        @property
        def area(self) -> int:
            return self.rows * self.columns

    @dataclass(frozen=True)
    class Named(Size):
        name: str = field(default="n", compare=False)
        parts: list[int] = field(default_factory=list, hash=False, repr=False)

    @dataclass
    class Open:
        first: int
        second: list[int] = field(default_factory=list)
        third: int = field(init=False)
        fourth: list[int] = field(init=False, default_factory=lambda: [4])

        def __post_init__(self) -> None:
            self.third = self.first + len(self.second)

    @dataclass(frozen=True, eq=False)
    class Single(Generic[T]):
        value: T

    @dataclass(frozen=True)
    class Stated:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.value % 10 == other.value % 10

        def __hash__(self) -> int:
            return self.value % 10

        def __repr__(self) -> str:
            return "stated"

    @dataclass(frozen=True)
    class Alike:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    @dataclass
    class Empty:
        pass

    @dataclass
    class Written:
        value: int

        def __init__(self, text: str) -> None:
            self.value = len(text)

    return {each.__name__: each for each in (Size, Named, Open, Single, Stated, Alike, Empty, Written)}


OURS, PYTHONS = _classes(dataclass), _classes(dataclasses.dataclass)
OBJECTS = [
    ("Size", (1,)),
    ("Size", (1, 2)),
    ("Named", (1, 2, "x", [7])),
    ("Open", (1,)),
    ("Open", (1, [2])),
    ("Single", ("a",)),
    ("Stated", (11,)),
    ("Stated", (21,)),
    ("Alike", (5,)),
    ("Empty", ()),
    ("Written", ("abc",)),
]


@pytest.mark.parametrize(("name", "arguments"), OBJECTS)
def test_an_object_shows_itself_and_gives_its_fields_as_pythons_does(name: str, arguments: tuple[Any, ...]) -> None:
    ours, pythons = OURS[name](*arguments), PYTHONS[name](*arguments)
    assert repr(ours) == repr(pythons)
    assert dataclasses.asdict(ours) == dataclasses.asdict(pythons)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(pythons)]
    assert type(ours).__match_args__ == type(pythons).__match_args__
    assert dataclasses.is_dataclass(ours)


def test_objects_are_equal_and_hashable_where_pythons_are() -> None:
    def table(classes: dict[str, Any]) -> list[list[bool]]:
        objects = [classes[name](*arguments) for name, arguments in OBJECTS for _ in range(2)]
        return [[a == b for b in objects] for a in objects]

    assert table(OURS) == table(PYTHONS)
    for classes in (OURS, PYTHONS):
        assert classes["Open"].__hash__ is None
        assert hash(classes["Size"](1)) == hash(classes["Size"](1, 3)) == hash((1, 3))
        assert hash(classes["Named"](1, 2, "x", [7])) == hash((1, 2))
        assert hash(classes["Alike"](5)) == hash((5,))
        assert hash(classes["Stated"](11)) == 1


def test_fields_of_a_frozen_object_can_neither_be_set_nor_deleted() -> None:
    for classes in (OURS, PYTHONS):
        size = classes["Named"](1)
        for name in ("rows", "name", "other"):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(size, name, 2)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(size, name)

        class Plain(classes["Size"]):  # not a dataclass itself: what it adds can be set
            pass

        plain = Plain(1)
        plain.other = 5
        with pytest.raises(FrozenInstanceError):
            plain.rows = 5


def test_replace_makes_another_object() -> None:
    assert dataclasses.replace(OURS["Size"](1, 2), rows=5) == OURS["Size"](5, 2)
    assert dataclasses.replace(OURS["Size"](2), columns=7).area == 14


def test_wrong_arguments_and_wrong_orders_of_fields_are_type_errors() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'rows'"):
        OURS["Size"]()
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        OURS["Size"](1, depth=3)
    with pytest.raises(TypeError, match="'second' follows default argument"):

        @dataclass
        class Wrong:
            first: int = 1
            second: int

    with pytest.raises(TypeError, match="keyword only"):

        @dataclass
        class Keyword:
            first: int = field(kw_only=True)


@pytest.mark.parametrize("first", [dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("second", [dataclass, dataclasses.dataclass])
def test_either_inherits_from_the_other_if_both_are_frozen_or_neither(first: Callable[..., Any], second: Callable[..., Any]) -> None:
    for frozen in (False, True):

        @first(frozen=frozen)
        class Base:
            first: int

        @second(frozen=frozen)
        class Derived(Base):
            second: int = 2

        assert repr(Derived(1)).endswith("Derived(first=1, second=2)")
        assert Derived(1) == Derived(1, 2) != Derived(2)

        with pytest.raises(TypeError, match="cannot inherit"):

            @second(frozen=not frozen)
            class Other(Base):
                pass


@dataclass(frozen=True)
class Kept:
    value: int
    inner: Kept | None = None


def test_objects_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, Kept(2)))) == Kept(1, Kept(2))


def test_objects_are_copied_and_referred_to_weakly_as_pythons_are() -> None:
    for classes in (OURS, PYTHONS):
        named = classes["Named"](1, 2, "x", [7])
        assert copy.copy(named) == copy.deepcopy(named) == named
        assert copy.copy(named).parts is named.parts
        assert copy.deepcopy(named).parts is not named.parts
        assert weakref.ref(named)() is named


@pytest.mark.parametrize("name", OURS)
def test_the_signature_of_a_class_is_pythons_before_and_after_the_first_object(name: str) -> None:
    arguments = next(arguments for made, arguments in OBJECTS if made == name)
    ours, pythons = _classes(dataclass)[name], _classes(dataclasses.dataclass)[name]
    expected = re.sub("<.*?>", "<factory>", str(inspect.signature(pythons)))
    assert re.sub("<.*?>", "<factory>", str(inspect.signature(ours))) == expected
    ours(*arguments)
    assert re.sub("<.*?>", "<factory>", str(inspect.signature(ours))) == expected


def test_methods_are_made_once_and_stay_where_somebody_put_others() -> None:
    @dataclass(frozen=True)
    class Pair:
        first: int
        second: int = 2

    class Plain(Pair):
        pass

    waiting = vars(Pair)["__init__"]
    assert Plain(1) == Plain(1, 2)
    made = vars(Pair)["__init__"]
    assert made is not waiting
    assert made.__qualname__ == waiting.__qualname__
    assert "__init__" not in vars(Plain)
    assert "__eq__" not in vars(Plain)
    assert Pair(3) == Pair(3, 2)
    assert vars(Pair)["__init__"] is made

    hidden = vars(Pair)["__hash__"]
    Pair.__hash__ = lambda self: 7  # type: ignore[method-assign]
    assert hidden(Pair(1)) == hash((1, 2))
    assert hash(Pair(1)) == 7


def test_classes_of_this_package_are_made_quickly_unless_they_need_what_only_pythons_decorator_has() -> None:
    source = Path(records.__file__).parents[1]
    slow = [
        f"{path.relative_to(source)}:{line}"
        for path in sorted(source.rglob("*.py"))
        if path != Path(records.__file__)
        for line in _plain_uses_of_pythons(path.read_text())
    ]
    assert not slow, f"take `dataclass` from anycann.support.records: {slow}"


def _plain_uses_of_pythons(text: str) -> Iterator[int]:
    """Lines where Python's `dataclass` makes a class without an option that ours does not have."""
    imported = re.search(r"^ *from dataclasses import .*\bdataclass\b", text, re.MULTILINE)
    if not imported and "dataclasses.dataclass" not in text:
        return
    tree = ast.parse(text)
    for decorator in (decorator for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for decorator in node.decorator_list):
        call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
        pythons = ("dataclass", "dataclasses.dataclass") if imported else ("dataclasses.dataclass",)
        if ast.unparse(call.func) in pythons and all(option.arg in ("frozen", "eq") for option in call.keywords):
            yield decorator.lineno


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("from dataclasses import dataclass\n@dataclass\nclass A: pass", [2]),
        ("from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass A: pass", [2]),
        ("import dataclasses\n@dataclasses.dataclass(eq=False)\nclass A: pass", [2]),
        ("from dataclasses import dataclass\n@dataclass(frozen=True, slots=True)\nclass A: pass", []),
        ("from anycann.support.records import dataclass\n@dataclass\nclass A: pass", []),
    ],
)
def test_uses_of_pythons_decorator_are_found(text: str, lines: list[int]) -> None:
    assert list(_plain_uses_of_pythons(text)) == lines


@dataclass
class Ring:
    next: Ring | None = None


def test_an_object_that_holds_itself_can_be_shown() -> None:
    ring = Ring()
    ring.next = ring
    assert repr(ring) == "Ring(next=...)"
