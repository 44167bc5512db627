"""What ais_bench prints and writes at the end: times of runs and copies, the throughput, which files became which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
import json
import logging
import os
import sys

import numpy as np

from anycann.support.records import dataclass

logger = logging.getLogger("ais_bench")
_PERCENTILE = 99


def set_up_logging(debug: bool) -> None:
    """Messages go to standard output as "[INFO] text"."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.DEBUG if debug else logging.INFO)


@dataclass(frozen=True)
class Times:
    """Figures of a list of milliseconds; all 0 for an empty one."""

    min: float
    max: float
    mean: float
    median: float
    percentile: float
    count: int

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Times:
        """The figures of a list."""
        if not len(milliseconds):
            return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0)
        mean, median, percentile = np.mean(milliseconds), np.median(milliseconds), np.percentile(milliseconds, _PERCENTILE)
        return cls(min(milliseconds), max(milliseconds), float(mean), float(median), float(percentile), len(milliseconds))

    def as_json(self) -> dict[str, float]:
        return {"min": self.min, "max": self.max, "mean": self.mean, "median": self.median, f"percentile({_PERCENTILE}%)": self.percentile,
                "count": self.count}  # fmt: skip

    def line(self, name: str) -> str:
        """The line that is printed."""
        return (
            f"{name} (ms): min = {self.min}, max = {self.max}, mean = {self.mean}, median = {self.median}, "
            f"percentile({_PERCENTILE}%) = {self.percentile}"
        )


@dataclass
class Summary:
    """Everything about the runs of one process, by ais_bench's names: programs fill one too, `ais_bench.infer.summary.summary`.

    Times are in milliseconds, of each run and each copy.
    """

    arguments: list[str] = field(default_factory=list)
    npu_compute_time_list: Sequence[float] = ()
    h2d_latency_list: Sequence[float] = ()
    d2h_latency_list: Sequence[float] = ()
    batches: list[int] = field(default_factory=list)
    files: dict[int, dict[str, list[str]]] = field(default_factory=dict)

    def reset(self) -> None:
        """Forget times and batches."""
        self.npu_compute_time_list = self.h2d_latency_list = self.d2h_latency_list = ()
        self.batches.clear()

    def add_args(self, args: Sequence[str]) -> None:
        """What the program was called with, for the file."""
        self.arguments = list(args)

    def add_batchsize(self, batch: int) -> None:
        """One more run had this batch."""
        self.batches.append(batch)

    def add_sample_id_infiles(self, sample: int, infiles: Sequence[str]) -> None:
        """What a sample was read from."""
        self.files.setdefault(sample, {"infiles": [], "outfiles": []})["infiles"] = list(infiles)

    def append_sample_id_outfile(self, sample: int, outfile: str) -> None:
        """A sample got one more output."""
        self.files.setdefault(sample, {"infiles": [], "outfiles": []})["outfiles"].append(outfile)

    def report(
        self, batchsize: float, output_prefix: str | None = None, display_all_summary: bool = False, multi_threads: bool = False
    ) -> None:
        """Print the summary, and write it to `output_prefix`_summary.json. multi_threads changes nothing: a run's time is its own."""
        self.print(batchsize, display_all_summary)
        if output_prefix is not None:
            self.write(f"{output_prefix}_summary.json", batchsize)

    def throughput(self, batch: float) -> float:
        """Samples a second."""
        mean = Times.of(self.npu_compute_time_list).mean
        return 1000 * self.batch(batch) / mean if mean else 0.0

    def batch(self, batch: float) -> float:
        """The mean of the batches that were run; `batch` where nobody noted them."""
        return sum(self.batches) / len(self.batches) if self.batches else batch

    def print(self, batch: float, all_lines: bool) -> None:
        """The lines between the two rules."""
        runs = Times.of(self.npu_compute_time_list)
        logger.info("-----------------Performance Summary------------------")
        if all_lines:
            logger.info(Times.of(self.h2d_latency_list).line("H2D_latency"))
        logger.info(runs.line("NPU_compute_time"))
        if all_lines:
            logger.info(Times.of(self.d2h_latency_list).line("D2H_latency"))
        logger.info(
            "throughput 1000*batchsize.mean(%s)/NPU_compute_time.mean(%s): %s", self.batch(batch), runs.mean, self.throughput(batch)
        )
        logger.info("------------------------------------------------------")

    def write(self, path: str, batch: float) -> None:
        """The summary as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.as_json(batch), file)

    def as_json(self, batch: float) -> dict[str, object]:
        return {
            "filesinfo": {str(sample): files for sample, files in self.files.items()},
            "args": self.arguments,
            "NPU_compute_time": Times.of(self.npu_compute_time_list).as_json(),
            "H2D_latency": Times.of(self.h2d_latency_list).as_json(),
            "D2H_latency": Times.of(self.d2h_latency_list).as_json(),
            "throughput": self.throughput(batch),
            "npu_compute_time_list": list(self.npu_compute_time_list),
            "pid": os.getpid(),
        }
