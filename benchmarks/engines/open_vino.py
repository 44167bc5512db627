"""OpenVINO on the processor, for latency."""

from __future__ import annotations

from collections.abc import Mapping
import importlib
from typing import Any

from anycann.om.plan import TensorSpec
from benchmarks.engines.job import Absent, Job, Precision

# a quantised model keeps float32 where it is not quantised, as the other engines do
HINTS: Mapping[Precision, str] = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}


class OpenVino:
    """A compiled model with the shapes of the job, one stream of `threads` threads."""

    name = "openvino"
    inputs: tuple[TensorSpec, ...] = ()

    def __init__(self, job: Job):
        core = _openvino().Core()
        model = core.read_model(str(job.path))
        if any(port.partial_shape.is_dynamic for port in model.inputs):
            model.reshape({_key(port): list(job.shapes[_key(port)]) for port in model.inputs})
        hints = {
            "INFERENCE_NUM_THREADS": job.threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": HINTS[job.precision],
        }
        self.request = core.compile_model(model, "CPU", hints).create_infer_request()
        self._names = frozenset(name for port in model.inputs for name in port.names)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name, valid until the next call."""
        results = self.request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return {output.get_any_name(): value for output, value in results.items()}


def open_openvino(job: Job) -> OpenVino:
    """Raises Absent where it is not installed, or where the processor has no bfloat16 and would compute in float32 instead."""
    if job.precision == "bf16" and "BF16" not in _openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise Absent("OpenVINO has no bfloat16 on this processor")
    return OpenVino(job)


def _openvino() -> Any:
    try:
        return importlib.import_module("openvino")
    except ImportError:
        raise Absent("openvino is not installed (pip install 'anycann[bench]')") from None


def _key(port: Any) -> str:
    """The name of an input in the ONNX file."""
    return port.get_any_name()
