"""ais_bench.infer.interface.MultiDeviceSession: the same model on several devices at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import time
from typing import TypeVar

import numpy as np

from anycann.tools.ais_bench.interface import Feed, InferSession

_Given = TypeVar("_Given")
_Outputs = TypeVar("_Outputs")
_Result = TypeVar("_Result")


class MultiDeviceSession:
    """The same model on several devices. What a device is given is a list; each entry has a session of its own, all run side by side."""

    def __init__(self, model_path: str, acl_json_path: str | None = None, debug: bool = False, loop: int = 1):
        self._arguments = (model_path, acl_json_path, debug, loop)
        self._times: dict[int, list[float]] = {}

    def infer(
        self, devices_feeds: Mapping[int, Sequence[Sequence[Feed]]], mode: str = "static", custom_sizes: int | Sequence[int] = 100000
    ) -> dict[int, list[list[np.ndarray]]]:
        """{device: [feeds, ...]} to {device: [outputs, ...]}."""
        return self._run(devices_feeds, lambda session, feeds: session.infer(feeds, mode, custom_sizes))

    def infer_pipeline(
        self,
        devices_feeds_list: Mapping[int, Sequence[Sequence[Sequence[Feed]]]],
        mode: str = "static",
        custom_sizes: int | Sequence[int] = 100000,
    ) -> dict[int, list[list[list[np.ndarray]]]]:
        """{device: [feeds_list, ...]} to {device: [the outputs for each feeds, ...]}."""
        return self._run(devices_feeds_list, lambda session, feeds_list: session.infer_pipeline(feeds_list, mode, custom_sizes))

    def infer_iteration(
        self,
        devices_feeds: Mapping[int, Sequence[Sequence[Feed]]],
        in_out_list: Sequence[int] | None = None,
        iteration_times: int = 1,
        mode: str = "static",
        custom_sizes: int | Sequence[int] | None = None,
        mem_copy: bool = True,
    ) -> dict[int, list[list[np.ndarray]]]:
        """As infer, with the turns of InferSession.infer_iteration."""
        sizes = 100000 if custom_sizes is None else custom_sizes
        return self._run(
            devices_feeds, lambda session, feeds: session.infer_iteration(feeds, in_out_list, iteration_times, mode, sizes, mem_copy)
        )

    def summary(self) -> dict[int, list[float]]:
        """{device: [seconds that each entry took, ...]} of the last call, the loading of its model included."""
        return self._times

    def _run(self, given: Mapping[int, Sequence[_Given]], call: Callable[[InferSession, _Given], _Outputs]) -> dict[int, list[_Outputs]]:
        jobs = [(device, entry) for device, entries in given.items() for entry in entries]
        opened = [_timed(InferSession, device, *self._arguments) for device, _ in jobs]
        try:
            with ThreadPoolExecutor(max(len(jobs), 1)) as beside:
                waiting = [beside.submit(_timed, call, session, entry) for (session, _), (_, entry) in zip(opened, jobs, strict=True)]
                done = [result.result() for result in waiting]
        finally:
            for session, _ in opened:
                session.finalize()
        results: dict[int, list[_Outputs]] = {}
        self._times = {}
        for (device, _), (_, loading), (output, running) in zip(jobs, opened, done, strict=True):
            results.setdefault(device, []).append(output)
            self._times.setdefault(device, []).append(loading + running)
        return results


def _timed(function: Callable[..., _Result], *arguments: object) -> tuple[_Result, float]:
    begin = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - begin
