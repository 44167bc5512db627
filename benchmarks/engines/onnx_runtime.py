"""ONNX Runtime on the processor."""

from __future__ import annotations

import importlib.util

from anycann.tools.engines import SessionEngine, open_onnxruntime
from benchmarks.engines.job import Absent, Job


def open_onnx_runtime(job: Job) -> SessionEngine:
    """Raises Absent where it is not installed, ModelError where it refuses the model."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise Absent("onnxruntime is not installed (pip install 'anycann[bench]')")
    return open_onnxruntime(str(job.path), job.threads)
