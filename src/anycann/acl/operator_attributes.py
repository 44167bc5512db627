"""acl.op: the attributes of an operator, collected one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar
import warnings

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.support.records import dataclass


@dataclass
class Attributes:
    """What acl.op.set_attr_* collects."""

    acl_word: ClassVar[str] = "operator attribute list"
    values: dict[str, object] = field(default_factory=dict)


@value("acl.op.create_attr", returns="attr")
def create_attr() -> int:
    """An empty list of attributes."""
    return PROCESS.handles.add(Attributes())


@value("acl.op.destroy_attr", failed=None, returns="None")
def destroy_attr(attr: int) -> None:
    """Forget the list."""
    PROCESS.handles.remove(attr, Attributes)


def attributes_of(attr: int) -> dict[str, object]:
    """The attributes behind a handle; none for null. Raises AclError."""
    return dict(PROCESS.handles.get(attr, Attributes).values) if attr else {}


@status("acl.op.set_attr_bool")
def set_attr_bool(attr: int, name: str, setting: int) -> None:
    """A truth value of a byte: 0, or another for true."""
    _set(attr, name, _truth(setting))


@status("acl.op.set_attr_int")
def set_attr_int(attr: int, name: str, setting: int) -> None:
    """An integer."""
    _set(attr, name, setting)


@status("acl.op.set_attr_float")
def set_attr_float(attr: int, name: str, setting: float) -> None:
    """A number, kept in 32 bits."""
    _set(attr, name, _single(setting))


@status("acl.op.set_attr_string")
def set_attr_string(attr: int, name: str, setting: str) -> None:
    """A text."""
    _set(attr, name, setting)


@status("acl.op.set_attr_list_bool")
def set_attr_list_bool(attr: int, name: str, settings: object) -> None:
    """A list of truth values of a byte: 0, or another for true."""
    _set(attr, name, [_truth(item) for item in _listed(settings, int)])


@status("acl.op.set_attr_list_int")
def set_attr_list_int(attr: int, name: str, settings: object) -> None:
    """A list of integers."""
    _set(attr, name, [int(item) for item in _listed(settings, int)])


@status("acl.op.set_attr_list_float")
def set_attr_list_float(attr: int, name: str, settings: object) -> None:
    """A list of numbers, kept in 32 bits."""
    _set(attr, name, [_single(item) for item in _listed(settings, int, float)])


@status("acl.op.set_attr_list_string")
def set_attr_list_string(attr: int, name: str, settings: list) -> None:  # type: ignore[type-arg]
    """A list of texts."""
    _set(attr, name, _listed(settings, str))


@status("acl.op.set_attr_list_list_int")
def set_attr_list_list_int(attr: int, name: str, settings: list) -> None:  # type: ignore[type-arg]
    """A list of lists of integers."""
    _set(attr, name, [[int(item) for item in _listed(row, int)] for row in settings])


@value_and_status("acl.op.set_attr_data_type", returns="(attr, ret)")
def set_attr_data_type(attr: int, name: str, data_type: int) -> int:
    """An aclDataType."""
    _set(attr, name, data_type)
    return attr


@value_and_status("acl.op.set_attr_list_data_type", returns="(attr, ret)")
def set_attr_list_data_type(attr: int, name: str, data_types: list[int]) -> int:
    """A list of aclDataTypes."""
    _set(attr, name, data_types)
    return attr


def _set(attr: int, name: str, setting: object) -> None:
    if not name:
        raise AclError(Code.INVALID_PARAM, "the attribute has no name")
    PROCESS.handles.get(attr, Attributes).values[name] = setting


def _single(setting: float) -> float:
    """The nearest number of 32 bits, infinity beyond them."""
    with np.errstate(over="ignore"):
        return float(np.float32(setting))


def _truth(setting: int) -> bool:
    if not 0 <= setting <= 255:
        raise AclError(Code.INVALID_PARAM, f"the value is {setting!r}; accepted: 0 to 255")
    return bool(setting)


def _listed(settings: object, *kinds: type) -> list[Any]:
    """The items of a list or of an array. Raises AclError for others, and for items of another kind."""
    if isinstance(settings, np.ndarray):
        warnings.warn("acl.op.set_attr_list_*: an array is given; lists are what pyACL documents", stacklevel=6)
        settings = settings.reshape(-1).tolist()
    words = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(settings, Sequence) or isinstance(settings, str | bytes) or any(not isinstance(item, kinds) for item in settings):
        raise AclError(Code.INVALID_PARAM, f"the value is {settings!r:.80}; accepted: a list of {words}")
    return list(settings)
