"""Inference on whichever device is there: a class that does not care which, a monitor of its speed and memory, and a way back to the host.

python -m examples.torch.infer --batch-size 8 --runs 20
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

from examples.torch.devices import best_device, synchronize
from examples.torch.resnet import resnet


@dataclass
class Monitor:
    """Times of runs in seconds, and the most memory of the device that was in use, in bytes."""

    device: torch.device
    seconds: list[float] = field(default_factory=list)
    pictures: int = 0

    @contextmanager
    def run(self, pictures: int) -> Iterator[None]:
        """Measure one run, until the device is done with it."""
        synchronize(self.device)
        begun = time.perf_counter()
        yield
        synchronize(self.device)
        self.seconds.append(time.perf_counter() - begun)
        self.pictures += pictures

    @property
    def peak_bytes(self) -> int:
        """0 on the host, which does not count."""
        if self.device.type == "cpu":
            return 0
        return int(getattr(torch, self.device.type).max_memory_allocated(self.device))

    def summary(self) -> dict[str, float]:
        """Median, 95th percentile, rate and memory; empty before the first run."""
        if not self.seconds:
            return {}
        ordered = sorted(self.seconds)
        return {
            "runs": len(ordered),
            "median_ms": statistics.median(ordered) * 1e3,
            "p95_ms": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))] * 1e3,
            "per_second": self.pictures / sum(ordered),
            "peak_mib": self.peak_bytes / 2**20,
        }


class Inference:
    """A model on the best device; takes and gives tensors of the host."""

    def __init__(self, model: nn.Module, device: str = "auto", half: bool = False) -> None:
        self.device = best_device(device)
        self.dtype = torch.float16 if half else torch.float32
        self.model = model.to(self.device).eval()
        self.monitor = Monitor(self.device)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs of one batch, measured."""
        cast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype is torch.float16)
        with torch.inference_mode(), self.monitor.run(len(inputs)), cast:
            result = self.model(inputs.to(self.device))
        return torch.as_tensor(result).float().cpu()


class SafeInference:
    """An inference that comes to a result: smaller batches when memory is short, the host when the device fails."""

    def __init__(self, model: nn.Module, device: str = "auto", report: Callable[[str], None] = print) -> None:
        self.first = Inference(model, device)
        self.make_host: Callable[[], Inference] = lambda: Inference(model, "cpu")
        self.report = report
        self.host: Inference | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs of one batch. Raises what the host raises: then it is the input that is wrong."""
        if self.host is not None:
            return self.host(inputs)
        try:
            return self.first(inputs)
        except torch.OutOfMemoryError:
            return self._in_halves(inputs)
        except RuntimeError as error:
            return self._on_host(inputs, error)

    def _in_halves(self, inputs: Tensor) -> Tensor:
        if len(inputs) == 1:
            return self._on_host(inputs, MemoryError("one picture does not fit"))
        self.report(f"no memory for {len(inputs)} at once on {self.first.device}; two halves")
        middle = len(inputs) // 2
        return torch.cat([self(inputs[:middle]), self(inputs[middle:])])

    def _on_host(self, inputs: Tensor, error: Exception) -> Tensor:
        """The device stays given up: what failed once would fail again."""
        self.report(f"{self.first.device} failed ({type(error).__name__}: {error}); the host goes on")
        host = self.make_host()
        result = host(inputs)
        self.host = host
        return result


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure ResNet-50 on random pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args(given)
    torch.manual_seed(0)
    inference = SafeInference(resnet(width=options.width), options.device)
    for _ in range(options.runs):
        inference(torch.randn(options.batch_size, 3, 32, 32))
    summary = inference.first.monitor.summary()
    print(", ".join(f"{name} {value:.2f}" for name, value in summary.items()), "on", inference.first.device)
    return summary


if __name__ == "__main__":
    main()
