"""`torch_npu.utils.FlopsCounter`: the floating point operations of what runs, by torch's own formulas for operators."""

from __future__ import annotations

from types import TracebackType

from torch.utils.flop_counter import FlopCounterMode


class FlopsCounter:
    """Counts from `start` to `stop`; what runs while it pauses counts as traversed and not as recorded."""

    def __init__(self) -> None:
        self._mode: FlopCounterMode | None = None
        self._not_recorded = 0
        self._paused_at: int | None = None

    def start(self) -> None:
        """Begin counting. Raises RuntimeError if it began already."""
        if self._mode is not None:
            raise RuntimeError("FlopsCounter.start() was called before; stop() ends that")
        self._mode = FlopCounterMode(display=False)
        self._mode.__enter__()

    def stop(self) -> None:
        """End counting, and forget the counts."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
        self._mode, self._not_recorded, self._paused_at = None, 0, None

    def pause(self) -> None:
        """Record nothing until `resume`."""
        if self._paused_at is None:
            self._paused_at = self._traversed()

    def resume(self) -> None:
        """The end of `pause`."""
        if self._paused_at is not None:
            self._not_recorded += self._traversed() - self._paused_at
            self._paused_at = None

    def get_flops(self) -> list[int]:
        """[recorded, traversed]: two a multiplication with its addition."""
        traversed = self._traversed()
        pausing = 0 if self._paused_at is None else traversed - self._paused_at
        return [traversed - self._not_recorded - pausing, traversed]

    def _traversed(self) -> int:
        return 0 if self._mode is None else self._mode.get_total_flops()

    def __enter__(self) -> FlopsCounter:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
