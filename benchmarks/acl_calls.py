"""What AscendCL costs beside the engine, and what two streams gain: `python -m benchmarks.acl_calls --document docs/benchmarks-acl.md`.

A network of six numbers shows the cost of a call. A pipeline copies a batch to the device, runs a network on it and copies the result
back, in one stream or in two that take turns.
"""

from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path
import shlex
import sys
import tempfile
import time
from types import ModuleType
from typing import Any

import click
import numpy as np
import onnx

from anycann.acl.namespace import fill
from anycann.compiler import compile_model
from anycann.om.writer import write_offline_model
from anycann.session import InferenceSession
from benchmarks.machine import this_machine

CALLS = 2000  # in one measurement
BATCHES = 12  # of a pipeline
COLUMNS, SOME = 4096, 64  # of the pipeline's input, and how many of them its product takes
ROWS = 2048
TO_DEVICE, TO_HOST = 1, 2


class Network:
    """A loaded model and a dataset for each of its two sides."""

    def __init__(self, acl: Any, path: str, taken: int, given: int):
        self.acl = acl
        self.model, _ = acl.mdl.load_from_file(path)
        (self.inputs, self.taken), (self.outputs, self.given) = self._dataset(taken), self._dataset(given)

    def _dataset(self, nbytes: int) -> tuple[int, int]:
        dataset, (address, _) = self.acl.mdl.create_dataset(), self.acl.rt.malloc(nbytes, 0)
        self.acl.mdl.add_dataset_buffer(dataset, self.acl.create_data_buffer(address, nbytes))
        return dataset, address


def _written(text: str, path: str, weights: dict[str, np.ndarray[Any, np.dtype[np.float32]]]) -> str:
    """An offline model of ONNX's text form."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    for number, node in enumerate(model.graph.node):
        node.name = f"node{number}"
    write_offline_model(path, compile_model(model))
    return path


def call_ways(acl: Any, folder: str) -> dict[str, Callable[[], object]]:
    """One call of the same small network, by who makes it."""
    shape = "float[2, 3]"
    text = f'<ir_version: 10, opset_import: ["": 20]> g ({shape} x) => ({shape} y) {{ y = Mul(x, x) }}'
    path = _written(text, f"{folder}/small.om", {})
    network, session = Network(acl, path, 24, 24), InferenceSession(path)
    feeds = {"x": np.ones((2, 3), np.float32)}
    return {
        "`InferenceSession.run`": lambda: session.run(None, feeds),
        "`acl.mdl.execute`": lambda: acl.mdl.execute(network.model, network.inputs, network.outputs),
    }


class Pipeline:
    """Batches copied in, run and copied out, by streams that take turns."""

    def __init__(self, acl: Any, path: str):
        self.acl = acl
        self.bytes_in, self.bytes_out = ROWS * COLUMNS * 4, ROWS * SOME * 4
        self.networks = [Network(acl, path, self.bytes_in, self.bytes_out) for _ in range(2)]
        self.streams = [acl.rt.create_stream()[0] for _ in range(2)]
        self.host_in, self.host_out = acl.rt.malloc_host(self.bytes_in)[0], acl.rt.malloc_host(self.bytes_out)[0]

    def run(self, streams: int, copies: bool = True, runs: bool = True) -> None:
        """All batches, with so many streams, and only what is asked for."""
        for batch in range(BATCHES):
            network, stream = self.networks[batch % 2], self.streams[batch % streams]
            if copies:
                self.acl.rt.memcpy_async(network.taken, self.bytes_in, self.host_in, self.bytes_in, TO_DEVICE, stream)
            if runs:
                self.acl.mdl.execute_async(network.model, network.inputs, network.outputs, stream)
            if copies:
                self.acl.rt.memcpy_async(self.host_out, self.bytes_out, network.given, self.bytes_out, TO_HOST, stream)
        for stream in self.streams:
            if self.acl.rt.synchronize_stream(stream):
                raise RuntimeError(self.acl.get_recent_err_msg())


def pipeline_ways(acl: Any, folder: str) -> dict[str, Callable[[], object]]:
    """The batches in one stream and in two, and either half of the work alone."""
    w = np.random.default_rng(0).normal(0, 0.02, (COLUMNS, SOME)).astype(np.float32)
    text = (
        f'<ir_version: 10, opset_import: ["": 20]> g (float[{ROWS}, {COLUMNS}] x) => (float[{ROWS}, {SOME}] y) <float[{COLUMNS}, {SOME}] w>'
        " { y = MatMul(x, w) }"
    )
    pipeline = Pipeline(acl, _written(text, f"{folder}/pipeline.om", {"w": w}))
    return {
        "copies alone": lambda: pipeline.run(1, runs=False),
        "runs alone": lambda: pipeline.run(1, copies=False),
        "one stream": lambda: pipeline.run(1),
        "two streams": lambda: pipeline.run(2),
    }


def in_turn(ways: dict[str, Callable[[], object]], repeats: int, seconds: float) -> dict[str, float]:
    """Median seconds of one call of each, `repeats` calls at a time in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, way in ways.items():
            started = time.perf_counter()
            for _ in range(repeats):
                way()
            times[name].append((time.perf_counter() - started) / repeats)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def page(calls: dict[str, float], batches: dict[str, float], command: str) -> list[str]:
    """The document's lines."""
    machine = this_machine([1])
    session = calls["`InferenceSession.run`"]
    return [
        "# Benchmarks of AscendCL's calls",
        "",
        "Written by `python -m benchmarks.acl_calls`; do not edit. The numbers below were made by",
        "",
        "```text",
        command,
        "```",
        "",
        f"on {machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB; {machine.system}. Medians, ways in turn.",
        "",
        "A call of a network that squares six numbers, one thread:",
        "",
        "| call | microseconds | more than the session |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {taken * 1e6:.2f} | {(taken - session) * 1e6:.2f} |" for name, taken in calls.items()),
        "",
        f"{BATCHES} batches of {ROWS * COLUMNS * 4 >> 20} MiB are copied to the device, run (a product with a {COLUMNS} x {SOME} matrix,",
        "one thread) and copied back, in one stream, or in two that take turns and are at work on two batches at a time:",
        "",
        "| what | milliseconds a batch |",
        "| --- | ---: |",
        *(f"| {name} | {taken * 1e3 / BATCHES:.2f} |" for name, taken in batches.items()),
        "",
        f"Two streams take {batches['two streams'] / batches['one stream']:.2f} of the time of one.",
    ]


@click.command
@click.option("--seconds", type=float, default=5.0, show_default=True, help="for the calls, and again for the batches")
@click.option("--document", type=click.Path(path_type=Path), help="The page to write.")
def main(seconds: float, document: Path | None) -> None:
    """Microseconds of a call, and milliseconds of a batch in one stream and in two."""
    os.environ.setdefault("ANYCANN_NUM_THREADS", "1")
    acl: Any = ModuleType("acl")
    fill(acl)
    acl.init()
    acl.rt.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        calls = in_turn(call_ways(acl, folder), CALLS, seconds)
        batches = in_turn(pipeline_ways(acl, folder), 1, seconds)
    lines = page(calls, batches, shlex.join(["python", "-m", "benchmarks.acl_calls", *sys.argv[1:]]))
    print(*lines, sep="\n")
    if document:
        document.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
