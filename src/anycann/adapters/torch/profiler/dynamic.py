"""`torch_npu.profiler.dynamic_profile`: profiling that begins when somebody changes a file while the program runs.

`init` puts a `profiler_config.json` with all settings into a folder; `step` looks whether it changed, and records `active` steps from
`start_step` on (-1: at once) into `prof_dir`. `start` records at once, by a file that it is told or by that one.
"""

from __future__ import annotations

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

import torch

from anycann.adapters.torch.profiler import names, session
from anycann.support.logging import get_logger

_FILE = "profiler_config.json"
_AT_ONCE = -1
_SWITCHES = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
DEFAULTS: dict[str, Any] = {
    "activities": ["CPU", "NPU"],
    "prof_dir": "./",
    "analyse": False,
    **dict.fromkeys(_SWITCHES, False),
    "active": 1,
    "warmup": 0,
    "start_step": 0,
    "is_rank": False,
    "rank_list": [],
}


# what is accepted in place of a default: whether a value is, and in words
_ACCEPTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("analyse", "is_rank", *_SWITCHES), (lambda value: isinstance(value, bool), "true or false")),
    "activities": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) and hasattr(names.ProfilerActivity, name) for name in value),
        'a list of "CPU" and "NPU"',
    ),
    "prof_dir": (lambda value: isinstance(value, str), "a folder's path"),
    "active": (lambda value: _is_whole(value, 1), "a whole number from 1 on"),
    "warmup": (lambda value: _is_whole(value, 0), "a whole number from 0 on"),
    "start_step": (lambda value: _is_whole(value, _AT_ONCE), "the number of a step, or -1: at once"),
    "rank_list": (lambda value: isinstance(value, list) and all(_is_whole(rank, 0) for rank in value), "a list of ranks"),
}


class DynamicProfile:
    """The state of a process: its step, the file it watches, and what records or waits to."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._seen: tuple[int, int] | None = None  # time and size of the file when it was read
        self._step = 0
        self._left = 0
        self._waiting: dict[str, Any] | None = None
        self._profile: Any = None

    def init(self, path: str) -> None:
        """Watch `profiler_config.json` in the folder `path`, which gets one with the defaults. Raises OSError if it cannot be written."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _FILE
        if not self._path.exists():
            self._path.write_text(json.dumps(DEFAULTS, indent=4))
        self._seen = self._stamp()

    def set_state(self, state_step: dict[str, Any]) -> None:
        """Count steps from state_step["cur_step"] on, as a program that resumes does. Raises ValueError if that is no step."""
        step = state_step.get("cur_step", 0)
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"dynamic_profile.set_state: cur_step {step!r}; accepted: an integer from 0 on")
        self._step = step

    def step(self) -> None:
        """The end of a step of the program."""
        self._step += 1
        if self._path is not None and self._stamp() != self._seen:
            self._seen = self._stamp()  # before it is read, so that what is written meanwhile is read again
            self._waiting = self._read(self._path)
        if self._profile is not None:
            self._profile.step()
            self._left -= 1
            if self._left == 0:
                self._profile.stop()
                self._profile = None
        elif self._waiting is not None and self._waiting["start_step"] in (_AT_ONCE, self._step):
            self._begin()
        elif self._waiting is not None and self._waiting["start_step"] < self._step:
            _warn(f"start_step {self._waiting['start_step']} is over at step {self._step}: nothing is recorded")
            self._waiting = None

    def start(self, config_path: str | None = None) -> None:
        """Record the steps that follow, as the file says. Raises RuntimeError without a file that tells how."""
        if self._profile is not None:
            _warn("a recording is under way: start is left out")
            return
        path = Path(config_path) if config_path else self._path
        if path is None:
            raise RuntimeError("dynamic_profile.start: no config_path, and init was not called")
        self._waiting = self._read(path)
        if self._waiting is None:
            raise RuntimeError(f"dynamic_profile.start: {path} cannot be read as settings; a warning said why")
        self._begin()

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            settings: dict[str, Any] = DEFAULTS | json.loads(path.read_text())
            _check(settings)
        except (OSError, ValueError, TypeError) as error:
            _warn(f"{path}: {error}; nothing is recorded")
            return None
        return settings

    def _begin(self) -> None:
        settings, self._waiting = self._waiting or {}, None
        if settings["is_rank"] and _rank() not in settings["rank_list"]:
            return
        activities = [getattr(names.ProfilerActivity, name) for name in settings["activities"]]
        self._left = settings["active"] + settings["warmup"]
        self._profile = session.profile(
            activities=activities,
            schedule=names.schedule(wait=0, warmup=settings["warmup"], active=settings["active"], repeat=1),
            on_trace_ready=session.tensorboard_trace_handler(settings["prof_dir"], analyse_flag=settings["analyse"]),
            **{name: settings[name] for name in _SWITCHES},
        )
        self._profile.start()


def _check(settings: dict[str, Any]) -> None:
    """Raises ValueError for a value that a setting cannot have. Settings of newer versions, unknown here, are left alone."""
    for name, (accepts, accepted) in _ACCEPTED.items():
        if not accepts(settings[name]):
            raise ValueError(f"{name} is {settings[name]!r}; accepted: {accepted}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _rank() -> int:
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if ready else 0


def _warn(text: str) -> None:
    get_logger("torch").warning("dynamic_profile: %s", text)


dynamic_profile = DynamicProfile()
