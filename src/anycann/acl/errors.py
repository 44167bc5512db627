"""How a function of AscendCL fails: with a code for the program and a sentence for its author."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.support.errors import AnyCANNError, DeviceError, InternalError, ModelError, UnsupportedError, UsageError, describe


class AclError(AnyCANNError):
    """Raised inside; `entries` turns it into the return code. The text says what, where, what was got and what is accepted.

    usual: programs ask in this way whether something is there; the log does not warn.
    """

    def __init__(self, code: Code, text: str, usual: bool = False):
        super().__init__(text)
        self.code, self.usual = code, usual


class ProgramError(RuntimeError):
    """What reaches the program as an exception instead of a code."""


# what an error of the engine comes to where a function says nothing more exact
_CODES: tuple[tuple[type[AnyCANNError], Code], ...] = (
    (ModelError, Code.PARSE_MODEL),
    (UsageError, Code.INVALID_PARAM),
    (UnsupportedError, Code.FEATURE_UNSUPPORTED),
    (DeviceError, Code.BAD_ALLOC),
    (InternalError, Code.INTERNAL_ERROR),
)


def as_acl_error(error: BaseException) -> AclError:
    """Any exception as one with a code; what AnyCANN did not raise on purpose is an internal error."""
    if isinstance(error, AclError):
        return error
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_ERROR)
    text = describe(error) if isinstance(error, AnyCANNError) else f"{type(error).__name__}: {error}"
    made = AclError(code, text)
    made.__cause__ = error
    return made


def forget_frames(error: BaseException) -> None:
    """Take the tracebacks from an error and from all that led to it."""
    waiting: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while waiting:
        link = waiting.pop()
        if link is not None and not any(link is other for other in seen):
            seen.append(link.with_traceback(None))
            waiting += [link.__cause__, link.__context__]
