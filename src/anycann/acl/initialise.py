"""acl.init to acl.finalize, versions, the chip's name, logging, and what went wrong last."""

from __future__ import annotations

import json
import os

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.support.logging import get_logger
from anycann.target.version import CANN_VERSION

VERSION = (1, 15, 0)  # of the AscendCL interface that is followed (CANN 8.1)
_LOG_LEVELS = {0: 10, 1: 20, 2: 30, 3: 40}  # acl.app_log's levels as those of `logging`
_app_log = get_logger("app")


@status("acl.init")
def init(config_path: object = "") -> None:
    """Initialise AscendCL, with the settings of a JSON file where one is named. Once a process; after finalize it stays finalized."""
    with PROCESS.lock:
        if PROCESS.references:
            raise AclError(Code.REPEAT_INITIALIZE, "acl.init was called before; it is called once a process")
        PROCESS.config = read_config(config_path)
        for begin in PROCESS.beginning:
            begin()
        PROCESS.references, PROCESS.finalized = 1, False


@status("acl.finalize")
def finalize() -> None:
    """End AscendCL for this process. What is still live is forgotten."""
    with PROCESS.lock:
        if not PROCESS.references:
            code = Code.REPEAT_FINALIZE if PROCESS.finalized else Code.UNINITIALIZE
            raise AclError(code, "acl.finalize was called before" if PROCESS.finalized else "acl.init was not called")
        PROCESS.end()


@value_and_status("acl.finalize_reference", returns="(reference_count, ret)")
def finalize_reference() -> int:
    """As finalize, and how often acl.init is still in effect."""
    with PROCESS.lock:
        if not PROCESS.references:
            raise AclError(Code.REPEAT_FINALIZE if PROCESS.finalized else Code.UNINITIALIZE, "acl.init is not in effect")
        PROCESS.end()
        return PROCESS.references


def read_config(path: object) -> dict[str, object]:
    """The settings in the file; none for no name, an empty name or an empty file."""
    if path is None or path == "":
        return {}
    if not isinstance(path, str):
        raise AclError(Code.INVALID_PARAM, f"config_path is {path!r:.80}; accepted: the path of a JSON file")
    if not os.path.isfile(path):
        raise AclError(Code.INVALID_FILE, f"config file {path} is not there")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().strip()
        settings = json.loads(text) if text else {}
    except (OSError, ValueError) as error:
        raise AclError(Code.PARSE_FILE, f"config file {path} cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise AclError(Code.PARSE_FILE, f"config file {path} holds a {type(settings).__name__}; accepted: a JSON object")
    return settings


# ---- what this is
@value("acl.get_soc_name", failed=None, returns="name")
def get_soc_name() -> str:
    """The chip that programs are told they run on."""
    return PROCESS.soc_name


@value_and_status("acl.get_version", failed=(0, 0, 0), returns="(major, minor, patch, ret)")
def get_version() -> tuple[int, int, int]:
    """Version of the interface."""
    return VERSION


@value_and_status("acl.get_version_str", failed=("",), returns="(version, ret)")
def get_version_str(package: str) -> str:
    """Version of a package of CANN that this stands for."""
    return CANN_VERSION


@value_and_status("acl.get_cann_version", failed=(None,), returns="(dict, ret)")
def get_cann_version(package: int) -> dict[str, object]:
    """Version of a package of CANN that this stands for, in parts."""
    major, minor, release = CANN_VERSION.partition(".RC")[0].split(".") + [CANN_VERSION.partition(".RC")[2]]
    return {
        "version": CANN_VERSION,
        "major_version": int(major),
        "minor_version": int(minor),
        "release_version": int(release or 0),
        "patch_version": 0,
        "reserved": "",
    }


# ---- what happened
@value("acl.get_recent_err_msg", failed=None, returns="str or None")
def get_recent_err_msg() -> str | None:
    """What went wrong in this thread since it was asked last."""
    message, PROCESS.thread.error = PROCESS.thread.error, None
    return message


@value("acl.app_log", failed=None, returns="None")
def app_log(level: int, message: str) -> None:
    """Write to the log. level: 0 debug, 1 info, 2 warning, 3 error."""
    if level not in _LOG_LEVELS:
        raise AclError(Code.INVALID_PARAM, f"log level is {level}; accepted: 0 to 3")
    _app_log.log(_LOG_LEVELS[level], "%s", message)
