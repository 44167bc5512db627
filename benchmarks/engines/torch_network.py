"""torch: the network the ONNX file was exported from, as it is or compiled by Inductor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import importlib.util
import os
import shutil
from typing import Any

from anycann.om.plan import TensorSpec
from benchmarks.engines.job import Absent, Job
from benchmarks.zoo.exports import EXPORTS, build
from benchmarks.zoo.packages import default_folder


class TorchNetwork:
    """A module called without gradients. The number of threads is one for the process: torch has no other."""

    inputs: tuple[TensorSpec, ...] = ()

    def __init__(self, name: str, call: Callable[..., Any], threads: int):
        import torch

        self.name, self._call = name, call
        torch.set_num_threads(threads)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The output of the network; feeds go in by their order."""
        import torch

        with torch.inference_mode():
            return {"output": self._call(*(torch.from_numpy(array) for array in feeds.values())).numpy()}


def open_eager(job: Job) -> TorchNetwork:
    """The module. Raises Absent without torch, or for a model that is published as an ONNX file only."""
    return TorchNetwork("torch", _module(job), job.threads)


def open_compiled(job: Job) -> TorchNetwork:
    """The module compiled for the shapes of the job. Raises Absent as `open_eager` does, and without a C++ compiler."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Absent(f"torch.compile needs a C++ compiler, and {compiler} is not there")
    module = _module(job)
    import torch

    torch.set_num_threads(job.threads)  # Inductor writes the number into its code
    return TorchNetwork("torch.compile", torch.compile(module, dynamic=False), job.threads)


def _module(job: Job) -> Any:
    if job.model.name not in EXPORTS:
        raise Absent("published as an ONNX file, there is no torch module")
    if importlib.util.find_spec("torch") is None:
        raise Absent("torch is not installed (pip install 'anycann[bench]')")
    return build(job.model.name, default_folder())
