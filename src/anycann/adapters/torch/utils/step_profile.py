"""`torch_npu.utils.profiler.Profile`: one step of a training loop, profiled, as scripts of Ascend's model zoo do it."""

from __future__ import annotations

from pathlib import Path
import sys
import time
from typing import Any

import torch

_TYPES = ("TORCH", "ASCEND_PROFILER")


class Profile:
    """Call `start` before and `end` after each step; step `start_step` is profiled into `save_path`, and the program ends after it.

    `profile_type` is "TORCH" (one Chrome trace), "ASCEND_PROFILER" (torch_npu.profiler's folder), or anything else for no profile. There is
    one in a process: a second call returns the first. Raises ValueError if `save_path` cannot be made.
    """

    _only: Profile | None = None

    def __new__(cls, *args: Any, **keywords: Any) -> Profile:
        if cls._only is None:
            cls._only = super().__new__(cls)
            cls._only._set_up(*args, **keywords)
        return cls._only

    def _set_up(
        self, start_step: int = 10, save_path: str = "./npu_profiling", profile_type: str | None = None, use_npu: bool = True,
        record_shape: bool = True, experimental_config: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        self.start_step, self.folder, self.profile_type = start_step, Path(save_path), profile_type
        self.step, self.started = 0, False
        self._profiler = self._make(record_shape, experimental_config, options) if profile_type in _TYPES else None

    def _make(self, record_shape: bool, experimental_config: Any, options: dict[str, Any]) -> Any:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"Profile: the folder {self.folder} cannot be made: {error}") from error
        if self.profile_type == "TORCH":
            return torch.profiler.profile(record_shapes=record_shape)
        import torch_npu

        ready = torch_npu.profiler.tensorboard_trace_handler(str(self.folder))
        return torch_npu.profiler.profile(
            on_trace_ready=ready, record_shapes=record_shape, experimental_config=experimental_config, **options
        )

    def start(self) -> None:
        """The beginning of a step. Raises RuntimeError if the last one did not end."""
        if self.started:
            raise RuntimeError("start interface can only be called once")
        self.started = True
        self.step += 1
        if self._profiler is not None and self.step == self.start_step:
            self._profiler.__enter__()

    def end(self) -> None:
        """The end of a step; of the profiled one, it writes the profile and ends the program. Raises RuntimeError without `start`."""
        if not self.started:
            raise RuntimeError("start interface must be called before end")
        self.started = False
        if self._profiler is None or self.step != self.start_step:
            return
        self._profiler.__exit__(None, None, None)
        if self.profile_type == "TORCH":
            self._profiler.export_chrome_trace(str(self.folder / f"torch_prof_{time.strftime('%Y%m%d%H%M%S')}.json"))
        sys.exit()
