"""The border of AscendCL: positional arguments are checked, errors become codes, and every function is on one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
import inspect
import operator
from typing import Any, Protocol, TypeVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.errors import AclError, ProgramError, as_acl_error, forget_frames
from anycann.support.errors import InternalError
from anycann.support.records import dataclass

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """A function that programs call. `limits`: what is not done, empty if all is; a refused one does nothing but return `refusal`."""

    name: str  # "acl.rt.malloc"
    call: Callable[..., Any]
    parameters: tuple[str, ...]
    returns: str  # "(ptr, ret)"
    limits: str = ""
    refusal: Code | None = None


class Watcher(Protocol):
    """Looks on at every call: a sanitizer, a profiler. What it raises reaches the program."""

    def before(self, name: str, arguments: Sequence[object]) -> None:
        """Before the function runs, with its converted arguments."""

    def after(self, name: str, arguments: Sequence[object], result: object, error: AclError | None) -> None:
        """After it, with what the program gets."""


class Border:
    """What all entries share: the list of them, who watches, and where the last error of a thread goes."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.watchers: tuple[Watcher, ...] = ()
        self.on_error: Callable[[str, AclError], None] = lambda name, error: None


BORDER = Border()


def status(name: str, limits: str = "") -> Callable[[F], F]:
    """For a function whose only result is its code: `ret`."""
    return _entry(name, "ret", lambda value: 0, lambda code: code, limits)


def value_and_status(name: str, failed: tuple[object, ...] = (0,), returns: str = "", limits: str = "") -> Callable[[F], F]:
    """For `(value, ret)`: the body returns a value, or a tuple where there are several; `failed` takes their place in an error."""
    single = len(failed) == 1

    def good(value: object) -> object:
        return (value, 0) if single else (*value, 0)  # type: ignore[misc]

    return _entry(name, returns or ("(value, ret)" if single else "(values..., ret)"), good, lambda code: (*failed, code), limits)


def value(name: str, failed: object = 0, returns: str = "value", limits: str = "") -> Callable[[F], F]:
    """For a bare value without a code; `failed` takes its place in an error."""
    return _entry(name, returns, lambda result: result, lambda code: failed, limits)


def refused(name: str, parameters: Sequence[str], why: str, code: Code = Code.FEATURE_UNSUPPORTED, failed: tuple[object, ...] = ()) -> None:
    """Declare a function that is known and not done: any arguments, always `code`, and a sentence that says why."""

    def call(*arguments: object) -> object:
        BORDER.on_error(name, AclError(code, f"{name} is not there: {why}"))
        return (*failed, int(code)) if failed else int(code)

    call.__name__ = name.rpartition(".")[2]
    BORDER.entries[name] = Entry(name, call, tuple(parameters), "(…, ret)" if failed else "ret", why, code)


def _entry(name: str, returns: str, good: Callable[[Any], Any], bad: Callable[[int], Any], limits: str) -> Callable[[F], F]:
    def declare(function: F) -> F:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
        converters = tuple(_converter(parameter.annotation) for parameter in parameters)
        least = sum(parameter.default is parameter.empty for parameter in parameters)
        most = len(parameters)

        @wraps(function)
        def call(*given: object) -> object:
            if not parameters:
                given = ()  # as pyACL, where these do not look at what they get: programs give a device number to synchronize_device
            if not least <= len(given) <= most:
                wanted = str(most) if least == most else f"{least} to {most}"
                raise TypeError(
                    f"{name} args parse failed: {len(given)} arguments; accepted: {wanted} ({', '.join(p.name for p in parameters)})"
                )
            arguments = []
            for convert, argument in zip(converters, given):  # noqa: B905 - optional ones may be left out
                try:
                    arguments.append(convert(argument))
                except (TypeError, ValueError, OverflowError) as error:
                    parameter = parameters[len(arguments)]
                    raise TypeError(f"{name} args parse failed: {parameter.name} is {argument!r:.80}; {error}") from None
            return _watched(name, arguments) if BORDER.watchers else _plain(name, arguments)

        def _plain(name: str, arguments: list[object]) -> object:
            try:
                return good(function(*arguments))
            except ProgramError:
                raise
            except Exception as error:
                return bad(int(_failure(name, error).code))

        def _watched(name: str, arguments: list[object]) -> object:
            watchers, problem = BORDER.watchers, None
            for watcher in watchers:
                watcher.before(name, arguments)
            try:
                result = good(function(*arguments))
            except ProgramError:
                raise
            except Exception as error:
                problem = _failure(name, error)
                result = bad(int(problem.code))
            for watcher in watchers:
                watcher.after(name, arguments, result, problem)
            return result

        BORDER.entries[name] = Entry(name, call, tuple(parameter.name for parameter in parameters), returns, limits)
        return call  # type: ignore[return-value]

    return declare


def _failure(name: str, error: Exception) -> AclError:
    """What the program is told of an error. Its frames go: they hold the program's variables, whose destructors must not wait."""
    problem = as_acl_error(error)
    BORDER.on_error(name, problem)
    forget_frames(problem)
    return problem


# ---- arguments
def _integer(argument: object) -> int:
    if type(argument) is int:
        return argument
    try:
        return operator.index(argument)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError("accepted: an int") from None


def _number(argument: object) -> float:
    if not isinstance(argument, int | float | np.number):
        raise TypeError("accepted: a number")
    return float(argument)


def _instance(kind: type, words: str) -> Callable[[object], object]:
    def convert(argument: object) -> object:
        if not isinstance(argument, kind):
            raise TypeError(f"accepted: {words}")
        return argument

    return convert


def _callable(argument: object) -> object:
    if not callable(argument):
        raise TypeError("accepted: a function")
    return argument


def _integers(argument: object) -> list[int]:
    if not isinstance(argument, list | tuple | np.ndarray):
        raise TypeError("accepted: a list of ints")
    return [_integer(item) for item in argument]


_CONVERTERS: dict[object, Callable[[object], object]] = {
    int: _integer,
    float: _number,
    bool: lambda argument: bool(_integer(argument)),
    str: _instance(str, "a str"),
    bytes: _instance(bytes, "bytes"),
    list: _instance(list, "a list"),
    list[Any]: _instance(list, "a list"),
    dict: _instance(dict, "a dict"),
    dict[str, Any]: _instance(dict, "a dict"),
    list[int]: _integers,
    np.ndarray: _instance(np.ndarray, "a numpy array"),
    Callable: _callable,
    object: lambda argument: argument,
}


def _converter(annotation: object) -> Callable[[object], object]:
    found = _CONVERTERS.get(annotation)
    if found is None:
        raise InternalError(f"no rule for arguments of type {annotation}")
    return found
