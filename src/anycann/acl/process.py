"""What AscendCL keeps for a process: whether it is initialised, its devices, contexts, memory and handles, and each thread's context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
import logging
import threading

from anycann.acl.codes import Code
from anycann.acl.entries import BORDER
from anycann.acl.errors import AclError
from anycann.acl.handles import Handles
from anycann.runtime.allocations import Allocations
from anycann.runtime.device import Device, devices
from anycann.runtime.stream import Stream
from anycann.support import options as settings
from anycann.support.logging import get_logger
from anycann.support.records import dataclass
from anycann.target.soc import soc_version

DEFAULT_SOC = "Ascend310P3"
_log = get_logger("acl")
_USUAL = (Code.WAIT_CALLBACK_TIMEOUT, Code.THREAD_NOT_SUBSCRIBE)  # what programs that ask for reports in a loop get


@dataclass
class Context:
    """Streams and memory of one device; a thread works in one at a time."""

    device: Device
    primary: bool = False
    default_stream: Stream = field(init=False)
    destroyed: bool = False

    def __post_init__(self) -> None:
        self.default_stream = Stream("default stream", device=self.device.number)


class _Thread(threading.local):
    context: int = 0
    device: int | None = None
    error: str | None = None
    code: int = 0  # of the last error


class Process:
    """The state behind `import acl`. Thread-safe as far as its parts are."""

    def __init__(self) -> None:
        self.handles = Handles()
        self.allocations = Allocations()
        self.references = 0  # of acl.init
        self.finalized = False
        self.config: dict[str, object] = {}
        self.primary: dict[int, tuple[int, int]] = {}  # device -> its primary context and how often it was set
        self.model_soc = ""
        self.beginning: list[Callable[[], None]] = []  # what else acl.init does, once its settings are read
        self.ending: list[Callable[[], None]] = []  # what else acl.finalize forgets
        self.lock = threading.RLock()
        self.thread = _Thread()

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The virtual devices, read from the environment when they are first asked for."""
        return devices()

    @property
    def soc_name(self) -> str:
        """The chip that programs are told: ANYCANN_SOC, else that of the first model loaded, else DEFAULT_SOC."""
        return soc_version(settings.SOC.get() or self.model_soc or DEFAULT_SOC).name

    def end(self) -> None:
        """Forget what does not outlive acl.finalize."""
        self.references, self.finalized = 0, True
        for forget in self.ending:
            forget()

    def check_initialised(self) -> None:
        """Raises AclError before acl.init and after acl.finalize."""
        if not self.references:
            when = "after acl.finalize" if self.finalized else "before acl.init"
            raise AclError(Code.UNINITIALIZE, f"called {when}")

    def device(self, number: int) -> Device:
        """Device `number`. Raises AclError if there is none."""
        if not 0 <= number < len(self.devices):
            raise AclError(
                Code.RT_INVALID_DEVICEID,
                f"device {number} is not there; accepted: 0 to {len(self.devices) - 1} (ANYCANN_DEVICES sets how many there are)",
            )
        return self.devices[number]

    def context(self, handle: int = 0) -> Context:
        """The context `handle`, or the current one of this thread. Raises AclError where there is none, or it is destroyed."""
        chosen = handle or self.thread.context
        if not chosen:
            raise AclError(Code.RT_CONTEXT_NULL, "this thread has no context; call acl.rt.set_device, create_context or set_context first")
        return self.handles.get(chosen, Context, Code.RT_CONTEXT_NULL)

    def stream(self, handle: int) -> Stream:
        """The stream `handle`; 0 is the default stream of the current context."""
        return self.handles.get(handle, Stream, Code.RT_PARAM_INVALID) if handle else self.context().default_stream


def _remember(name: str, error: AclError) -> None:
    """The last error of this thread, for acl.get_recent_err_msg, and for the log."""
    lines = [
        f"{error_block(error.code)}: {error}",
        f"        Function: {name}",
        f"        Return code: {int(error.code)} ({error.code.header_name})",
    ]
    PROCESS.thread.error, PROCESS.thread.code = "\n".join(lines), int(error.code)
    _log.log(logging.DEBUG if error.usual or error.code in _USUAL else logging.WARNING, "%s: %s (%d)", name, error, error.code)


def error_block(code: Code) -> str:
    """Ascend's short name for where an error comes from: EH (AscendCL), EE (runtime), GE's E1, EZ9999 for internal ones."""
    if code >= Code.INTERNAL_ERROR and not code.name.startswith("HI_"):
        return "EZ9999"
    if code.name.startswith("RT_"):
        return "EE1001"
    return "E10001" if code.name.startswith("GE_") else "EH0001"


PROCESS = Process()
BORDER.on_error = _remember
