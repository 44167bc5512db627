"""`python -m ais_bench`: one process, one for each of several devices, or one run after another over a range of shapes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import product
import multiprocessing
import os
import sys
import time

import numpy as np

from anycann.support.errors import AnyCANNError, UsageError, describe
from anycann.tools.ais_bench.benchmark import dump_folder, run_benchmark
from anycann.tools.ais_bench.files import dumps_as_npy, file_lists, parts_for
from anycann.tools.ais_bench.interface import InferSession
from anycann.tools.ais_bench.options import parse_options
from anycann.tools.ais_bench.summary import logger, set_up_logging


def main(words: Sequence[str] | None = None) -> int:
    """Answers with the exit status."""
    given = list(sys.argv[1:] if words is None else words)
    options = parse_options(given)
    set_up_logging(options.debug)
    try:
        dumped = dump_folder(options) if options.dump_npy else None
        status = _run(options, given)
        if dumped is not None:  # by all devices and shapes
            dumps_as_npy(dumped)
        return status
    except AnyCANNError as error:
        logger.error("%s", describe(error))
        return 1


def _run(options: Namespace, given: list[str]) -> int:
    if options.dymShape_range and not options.dymShape:
        return _over_shapes(options, given)
    if len(options.device) > 1:
        return _on_devices(options, given)
    run_benchmark(options, ["ais_bench", *given])
    return 0


# ---- several devices
def _on_devices(options: Namespace, given: list[str]) -> int:
    logger.info("multidevice:%s run begin", options.device)
    stamp = options.output_dirname or time.strftime("%Y_%m_%d-%H_%M_%S")
    jobs = []
    for device, share in zip(options.device, _shares(options), strict=True):
        own = copy(options)
        own.device, own.input = [device], share
        own.output_dirname = os.path.join(stamp, f"device{device}") if options.output else None
        jobs.append(own)
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(jobs)) as pool:
        pending = [pool.apply_async(_one_device, (own, given)) for own in jobs]
        done = [(own.device[0], result.get()) for own, result in zip(jobs, pending, strict=True)]
    logger.info(
        "multidevice run end qsize:%s result:%s",
        2 * len([result for _, result in done if result]),
        int(any(result is None for _, result in done)),
    )
    good = [(device, result) for device, result in done if result is not None]
    for number, (device, (throughput, start, end)) in enumerate(good):
        print(f"i:{number} device_{device} throughput:{throughput} start_time:{start} end_time:{end}", flush=True)
    logger.info("summary throughput:%s", sum(throughput for _, (throughput, _, _) in good))
    return int(len(good) < len(done))


def _one_device(options: Namespace, given: list[str]) -> tuple[float, float, float] | None:
    """Throughput, start and end of a process of its own; None if it failed."""
    set_up_logging(options.debug)
    start = time.time()
    try:
        return run_benchmark(options, ["ais_bench", *given]), start, time.time()
    except AnyCANNError as error:
        logger.error("device %s: %s", options.device[0], describe(error))
        return None


def _shares(options: Namespace) -> list[str | None]:
    if not options.input:
        return [None] * len(options.device)
    session = InferSession(options.device[0], options.model)
    inputs = len(session.get_inputs())
    session.finalize()
    shares = parts_for(file_lists(options.input.split(",")), inputs, len(options.device))
    if not all(shares):
        raise UsageError(f"--input has too few files for {len(options.device)} devices")
    return list(shares)


# ---- a range of shapes
def _over_shapes(options: Namespace, given: list[str]) -> int:
    results = []
    for shape in shapes_in(options.dymShape_range):
        own = copy(options)
        own.dymShape = shape
        try:
            results.append((shape, "OK", run_benchmark(own, ["ais_bench", *given])))
        except AnyCANNError as error:
            logger.error("%s", describe(error))
            results.append((shape, "Failed", 0.0))
        logger.info("dymshape:%s end run result:%s", shape, results[-1][1])
    good = [throughput for _, result, throughput in results if result == "OK"]
    logger.info("-----------------dyshape_range Performance Summary------------------")
    logger.info("run_count:%s success_count:%s avg_throughput:%s", len(results), len(good), float(np.mean(good)) if good else 0.0)
    for number, (shape, result, throughput) in enumerate(sorted(results, key=lambda row: -row[2])):
        logger.info("%s dymshape:%s  result:%s throughput:%s", number, shape, result, throughput)
    logger.info("------------------------------------------------------")
    return int(not good)


def shapes_in(ranges: str) -> list[str]:
    """Every --dymShape that a range stands for, or each line of a file of them: "x:1~3,600-700" has six."""
    if os.path.isfile(ranges):
        with open(ranges, encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip()]
    else:
        lines = [ranges]
    return [";".join(chosen) for line in lines for chosen in product(*(list(_of_input(part)) for part in line.split(";")))]


def _of_input(text: str) -> Iterator[str]:
    name, _, sizes = text.rpartition(":")
    try:
        choices = [_sizes(size) for size in sizes.split(",")]
    except ValueError:
        raise UsageError(f"--dymShape_range has {text!r}; accepted: 'name:1,600~700,600-700,1~9~2'") from None
    for shape in product(*choices):
        yield f"{name}:{','.join(map(str, shape))}"


def _sizes(text: str) -> list[int]:
    if "~" in text:
        start, end, *step = (int(part) for part in text.split("~"))
        return list(range(start, end + 1, *step))
    return [int(part) for part in text.split("-")]
