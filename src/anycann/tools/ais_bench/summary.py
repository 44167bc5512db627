"""What ais_bench prints and writes at the end: times of runs and copies, the throughput, which files became which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
import json
import logging
import os
import sys

import numpy as np

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
        if not milliseconds:
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
    """Everything about the runs of one process."""

    arguments: list[str]
    runs_ms: list[float] = field(default_factory=list)
    to_device_ms: list[float] = field(default_factory=list)
    to_host_ms: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    files: dict[int, dict[str, list[str]]] = field(default_factory=dict)

    def wrote(self, sample: int, infiles: Sequence[str], outfile: str) -> None:
        """A sample got one more output."""
        entry = self.files.setdefault(sample, {"infiles": list(infiles), "outfiles": []})
        entry["outfiles"].append(outfile)

    def throughput(self, batch: float) -> float:
        """Samples a second."""
        mean = Times.of(self.runs_ms).mean
        return 1000 * self.batch(batch) / mean if mean else 0.0

    def batch(self, batch: float) -> float:
        """The mean of the batches that were run; `batch` where nobody noted them."""
        return sum(self.batches) / len(self.batches) if self.batches else batch

    def print(self, batch: float, all_lines: bool) -> None:
        """The lines between the two rules."""
        runs = Times.of(self.runs_ms)
        logger.info("-----------------Performance Summary------------------")
        if all_lines:
            logger.info(Times.of(self.to_device_ms).line("H2D_latency"))
        logger.info(runs.line("NPU_compute_time"))
        if all_lines:
            logger.info(Times.of(self.to_host_ms).line("D2H_latency"))
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
            "NPU_compute_time": Times.of(self.runs_ms).as_json(),
            "H2D_latency": Times.of(self.to_device_ms).as_json(),
            "D2H_latency": Times.of(self.to_host_ms).as_json(),
            "throughput": self.throughput(batch),
            "npu_compute_time_list": list(self.runs_ms),
            "pid": os.getpid(),
        }
