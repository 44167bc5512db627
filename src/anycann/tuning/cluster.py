"""Measuring on many machines: one Ray actor on each that has the processor that is tuned for, each with a measuring process of its own.

Kernels are compiled where the tuner runs; code and operands travel, timings come back. A machine that is lost loses only its job, which
another one takes. Needs Ray (`pip install anycann[cluster]`) and AnyCANN of the same version on each machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
import os
import socket
from typing import Any

import anycann
from anycann.support.errors import DeviceError, UnsupportedError, UsageError
from anycann.support.logging import get_logger
from anycann.target.target import Target, host
from anycann.tuning.identity import machine
from anycann.tuning.measuring import Job, Measurer, Timing

CONNECT_SECONDS = 10.0
LOCAL = "local"  # as an address: a cluster of this machine alone, started here


class MeasuringMachine:
    """What runs on a machine of the cluster."""

    def __init__(self) -> None:
        self._measurer = Measurer()

    def describe(self) -> dict[str, object]:
        """The version of AnyCANN there, and the processor as far as measurements depend on it."""
        return {"version": anycann.__version__, "machine": machine(host())}

    def measure(self, job: Job) -> list[Timing]:
        """As `Measurer.measure`."""
        return self._measurer.measure(job)


class Cluster:
    """The machines of a Ray cluster that have the processor of `target`, as a measurer of as many jobs at once."""

    def __init__(self, ray: Any, target: Target, threads: int):
        self._ray = ray
        self._actors = _suitable(ray, target, threads)

    @property
    def places(self) -> int:
        """Jobs that are measured at the same time."""
        return len(self._actors)

    def measure_all(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Timing]]]:
        """The number and the timings of each job, as they come. Raises DeviceError when no machine is left."""
        waiting, running = list(range(len(jobs)))[::-1], dict[Any, tuple[int, Any]]()
        idle = list(self._actors)
        while waiting or running:
            if not self._actors:
                raise DeviceError("every machine of the Ray cluster was lost while tuning; what was measured is in the journal")
            while waiting and idle:
                number, actor = waiting.pop(), idle.pop()
                running[actor.measure.remote(jobs[number])] = (number, actor)
            (finished,), _ = self._ray.wait(list(running), num_returns=1)
            number, actor = running.pop(finished)
            try:
                timings = self._ray.get(finished)
            except self._ray.exceptions.RayActorError as error:
                get_logger("tuning").warning("a machine of the cluster was lost, its kernels are measured elsewhere: %s", error)
                self._actors.remove(actor)
                waiting.append(number)
            else:
                idle.append(actor)
                yield number, timings

    def close(self) -> None:
        """Let the machines go."""
        for actor in self._actors:
            self._ray.kill(actor)


@contextmanager
def on_cluster(address: str, target: Target, threads: int) -> Iterator[Cluster]:
    """The cluster at a Ray address ("auto": the one this machine belongs to; "local": one of this machine alone).

    Raises UnsupportedError without Ray, UsageError where no cluster answers or none of its machines fits.
    """
    ray = _connected(address)
    try:
        cluster = Cluster(ray, target, threads)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        ray.shutdown()


def _connected(address: str) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers about each start
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its way from the next release on, and no warning about it
    try:
        import ray
    except ImportError as error:
        raise UnsupportedError(
            f"tuning on a cluster needs Ray, which cannot be imported ({error}): pip install 'anycann[cluster]'"
        ) from error
    try:
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False if address == LOCAL else None)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"no Ray cluster answers at {address!r} ({error}); accepted: the address of one (`ray start --head` prints it), auto, or local"
        ) from error
    return ray


def _reach(address: str) -> None:
    """Raise OSError where nothing listens, which Ray itself would take minutes to say."""
    name, _, port = address.rpartition(":")
    if name and port.isdecimal():
        socket.create_connection((name.removeprefix("ray://"), int(port)), CONNECT_SECONDS).close()


def _suitable(ray: Any, target: Target, threads: int) -> list[Any]:
    """An actor on each machine that can measure for `target`; why others cannot is said in the log. Raises UsageError if none can."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor = ray.remote(MeasuringMachine)
    wanted: dict[str, object] = {"version": anycann.__version__, "machine": machine(target)}
    found, refused = [], []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        processors = min(threads, int(node["Resources"].get("CPU", 1)) or 1)
        started = actor.options(num_cpus=processors, scheduling_strategy=place).remote()
        why = _why_not(ray, started, wanted)
        if why:
            get_logger("tuning").warning("machine %s does not take part: %s", node["NodeManagerAddress"], why)
            refused.append(f"{node['NodeManagerAddress']}: {why}")
            ray.kill(started)
        else:
            found.append(started)
    if not found:
        raise UsageError(f"no machine of the cluster can measure for {target.cpu}: {'; '.join(refused) or 'it has none'}")
    return found


def _why_not(ray: Any, actor: Any, wanted: dict[str, object]) -> str:
    """Why a machine cannot measure for another; "" if it can."""
    try:
        there = ray.get(actor.describe.remote(), timeout=120)
    except (ray.exceptions.RayError, TimeoutError) as error:
        return f"AnyCANN does not answer there ({type(error).__name__}: {str(error).strip().splitlines()[-1]})"
    return "; ".join(f"its {name} is {there[name]}, wanted {wanted[name]}" for name in wanted if there[name] != wanted[name])
