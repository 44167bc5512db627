"""acl.prof: a profile from init to finalize, or of the whole process as the settings of acl.init say."""

from __future__ import annotations

import atexit
import os
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.prof_subscriptions import SUBSCRIPTIONS
from anycann.acl.profile_files import write_profile
from anycann.acl.profile_session import (
    ACL_API,
    AICPU,
    KNOWN_BITS,
    MSPROFTX,
    PROFILER,
    TASK_TIME,
    Session,
)
from anycann.support import options
from anycann.support.logging import get_logger
from anycann.support.records import dataclass

METRICS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 0xFF)
_log = get_logger("acl")


@dataclass(frozen=True)
class Config:
    """What acl.prof.create_config was told."""

    acl_word: ClassVar[str] = "profiling config"
    devices: tuple[int, ...]
    metrics: int
    mask: int


@status("acl.prof.init")
def init(path: str) -> None:
    """Profiles are written below the folder `path`, which is there."""
    PROCESS.check_initialised()
    if PROFILER.folder is not None:
        raise AclError(Code.PROF_ALREADY_RUN, "acl.prof.init was called before; acl.prof.finalize comes first")
    if SUBSCRIPTIONS.active:
        raise AclError(Code.PROF_API_CONFLICT, "a model is subscribed; acl.prof.init and acl.prof.model_subscribe do not go together")
    if not os.path.isdir(path) or not os.access(path, os.W_OK):
        raise AclError(Code.INVALID_FILE, f"{path!r} is no folder that may be written to")
    PROFILER.folder = path


@status("acl.prof.finalize")
def finalize() -> None:
    """End profiling; what still runs is stopped and written."""
    _folder()
    if PROFILER.session is not None:
        _stop()
    PROFILER.folder = None


@value("acl.prof.create_config", returns="config", limits="metrics of the AI Core have no meaning here: they are checked and not measured")
def create_config(devices: list[int], metrics: int, events: int, mask: int) -> int:
    """What to profile. mask: 0x1 calls of ACL, 0x2 times of kernels, 0x8 of the host, 0x40 iterations, 0x80 marks."""
    for device in devices:
        PROCESS.device(device)
    if not devices:
        raise AclError(Code.INVALID_PARAM, "the list of devices is empty")
    if metrics not in METRICS:
        raise AclError(Code.INVALID_PARAM, f"AI Core metrics are {metrics}; accepted: 0 to 8, 255 (none)")
    if not mask or mask & ~KNOWN_BITS:
        raise AclError(Code.INVALID_PARAM, f"the data type mask is {mask:#x}; accepted: bits of {KNOWN_BITS:#x}, at least one")
    return PROCESS.handles.add(Config(tuple(devices), metrics, mask))


@status("acl.prof.destroy_config")
def destroy_config(config: int) -> None:
    """Forget a configuration."""
    PROCESS.handles.remove(config, Config)


@status("acl.prof.start")
def start(config: int) -> None:
    """Begin to record."""
    wanted = PROCESS.handles.get(config, Config)
    _folder()
    if PROFILER.session is not None:
        raise AclError(Code.PROF_ALREADY_RUN, "a profile runs already; acl.prof.stop ends it")
    PROFILER.session, PROFILER.config = Session(wanted.mask, wanted.devices), config
    PROFILER.session.open()


@status("acl.prof.stop")
def stop(config: int) -> None:
    """End what `start` began, and write it."""
    PROCESS.handles.get(config, Config)
    _folder()
    if PROFILER.session is None or PROFILER.config != config:
        raise AclError(Code.PROF_NOT_RUN, "no profile runs with this configuration; acl.prof.start begins one")
    _stop()


@status("acl.prof.set_config", limits="kept and not used")
def set_config(kind: int, setting: str) -> None:
    """Settings of hardware that is not there."""
    PROFILER.settings[kind] = setting


def _folder() -> str:
    if PROFILER.folder is None:
        raise AclError(Code.PROF_NOT_RUN, "acl.prof.init was not called")
    return PROFILER.folder


def _stop() -> None:
    session = PROFILER.end()
    assert session is not None
    try:
        written = write_profile(_folder(), session)
    except OSError as error:
        raise AclError(Code.PROFILING_FAILURE, f"the profile cannot be written: {error}") from error
    _log.info("profile written to %s", written)


# ---- by the settings of acl.init
_SWITCHED_ON = ACL_API | TASK_TIME | AICPU


def _begin_as_configured() -> None:
    """`profiler` of the file of acl.init: {"switch": "on", "output": folder, "msproftx": "on"} profiles the whole process.

    So does ANYCANN_PROFILE where the file says nothing.
    """
    folder = options.PROFILE.get()
    settings = PROCESS.config.get("profiler", folder and {"switch": "on", "output": folder, "msproftx": "on"})
    if not isinstance(settings, dict) or settings.get("switch", "off") == "off":
        return
    folder = str(settings.get("output") or os.getcwd())
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise AclError(Code.INVALID_PROFILING_CONFIG, f"the folder of the profile, {folder!r}, cannot be made: {error}") from error
    if settings["switch"] != "on" or not os.access(folder, os.W_OK):
        words = 'accepted: "on" or "off", and a folder that may be written to'
        raise AclError(Code.INVALID_PROFILING_CONFIG, f"profiler: switch is {settings['switch']!r:.40}, output is {folder!r}; {words}")
    PROFILER.folder = folder
    PROFILER.session = Session(_SWITCHED_ON | (MSPROFTX if settings.get("msproftx") == "on" else 0), (0,))
    PROFILER.session.open()


def _end() -> None:
    """What still runs at acl.finalize is written."""
    if PROFILER.session is not None:
        try:
            _stop()
        except AclError as error:
            _log.warning("%s", error)
    PROFILER.folder = None


def _end_with_python() -> None:
    """A program that never calls acl.finalize gets its profile too."""
    if PROCESS.references:
        _end()


PROCESS.beginning.append(_begin_as_configured)
PROCESS.ending.append(_end)
atexit.register(_end_with_python)
