"""Memory of a training step beside eager PyTorch on the cpu: `python -m benchmarks.torch_memory`.

Each way runs in a process of its own: some steps, then what one more step takes at its peak beyond what is held before it (weights, the
optimizer's state, compiled code), which is activations, gradients and what kernels need besides. The engine keeps its arenas from step to
step; they are given back first, and so counted. From Linux's /proc.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import gc
from pathlib import Path
import subprocess
import sys

import click
import torch
from torch.nn import functional

import anycann
from anycann.adapters.torch.graph.backend import anycann as backend
from anycann.adapters.torch.graph.report import reports
from benchmarks.networks.resnet import ResNet50
from benchmarks.torch_compile import Encoder
from benchmarks.torch_device import Work, resnet18

Case = tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor]]
WAYS = ("cpu", "npu", "graph")
CASES: dict[str, Case] = {
    "ResNet-18, batch 64": (resnet18, lambda: torch.randn(64, 3, 32, 32)),
    "ResNet-50, batch 64": (ResNet50, lambda: torch.randn(64, 3, 32, 32)),
    "encoder, batch 16 x 64": (Encoder, lambda: torch.randint(0, 1000, (16, 64))),
}
_STATUS = Path("/proc/self/status")


def step_of(case: str, way: str) -> Work:
    """A step of SGD with momentum; `graph` is torch.compile with the backend anycann on the cpu."""
    torch.manual_seed(0)
    device = "npu" if way == "npu" else "cpu"
    make, inputs = CASES[case]
    model, x = make().to(device), inputs().to(device)
    y = torch.randint(0, 10, (len(x),)).to(device)
    run = torch.compile(model, backend=backend) if way == "graph" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> object:
        functional.cross_entropy(run(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        return None

    return step


def peak_of(step: Work) -> int:
    """Bytes that a step takes at its peak beyond what is held before it."""
    for _ in range(3):
        step()
    gc.collect()
    for part in (part for report in reports() for part in report.program.compiled.values()):
        part.forget_workspaces()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before = _status("VmRSS")
    step()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) << 10


def _apart(case: str, way: str) -> int:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.torch_memory", "--case", case, "--way", way]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


@click.command()
@click.option("--case", type=click.Choice(CASES), help="measure this one, in this process, and print bytes")
@click.option("--way", type=click.Choice(WAYS), help="of --case")
def main(case: str | None, way: str | None) -> None:
    """Measure the memory of training steps."""
    if case is not None and way is not None:
        sys.path.append(str(Path(anycann.__file__).parent / "shims" / "python"))
        import torch_npu  # noqa: F401

        torch.set_num_threads(1)
        print(peak_of(step_of(case, way)))
        return
    print(f"{'peak of a step [MB]':30}" + "".join(f"{way:>9}" for way in WAYS) + "  npu/cpu graph/cpu")
    for name in CASES:
        peaks = [_apart(name, one) for one in WAYS]
        print(f"{name:30}" + "".join(f"{peak / 1e6:9.1f}" for peak in peaks) + "".join(f"{peak / peaks[0]:9.2f}" for peak in peaks[1:]))


if __name__ == "__main__":
    main()
