"""AiCpu steps: nodes without generated code, computed on the host by their numpy meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from anycann.om.plan import HostStep
from anycann.runtime.run_state import RunState
from anycann.support.errors import AnyCANNError, InternalError, ModelError, context

if TYPE_CHECKING:
    import onnx


class Evaluate(Protocol):
    """A node ready to run: its outputs for its inputs (arrays, lists for sequences, None where absent)."""

    def __call__(self, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]: ...


class Prepare(Protocol):
    """`graph.prepared.PreparedNode`: makes a node of a version of the default domain ready."""

    def __call__(self, node: onnx.NodeProto, opset: int) -> Evaluate: ...


class HostRunner:
    """Makes the nodes of host steps ready by `prepare`, each once. Safe in any thread if that is."""

    def __init__(self, prepare: Prepare):
        self._prepare = prepare
        self._nodes: dict[tuple[bytes, int], Evaluate] = {}

    def prepared(self, step: HostStep) -> Evaluate:
        """The node of `step`, ready to run."""
        evaluate = self._nodes.get((step.node, step.opset))
        if evaluate is None:
            evaluate = self._nodes[step.node, step.opset] = self._prepare(_parse(step), step.opset)
        return evaluate


class HostCall:
    """A host step and its node, which `runner` makes ready when it runs first. Safe in any thread."""

    def __init__(self, step: HostStep, runner: HostRunner | None):
        self.step, self._runner = step, runner
        self._evaluate: Evaluate | None = None

    def run(self, state: RunState) -> None:
        """Compute and keep the outputs of the step. Errors say which node it was."""
        step, value = self.step, state.value
        captures = {name: value(name) for name in step.captures} if step.captures else None
        try:
            results = (self._evaluate or self._ready())([value(name) for name in step.inputs], captures)
        except AnyCANNError:
            with context(f"while running node {step.name!r} ({step.op_type}) on the host"):
                raise
        state.store_all(step, results)

    def _ready(self) -> Evaluate:
        if self._runner is None:
            step = self.step
            raise InternalError(f"node {step.name!r} ({step.op_type}) runs on the host, but the program was loaded without a host runner")
        self._evaluate = self._runner.prepared(self.step)
        return self._evaluate


def _parse(step: HostStep) -> onnx.NodeProto:
    import onnx  # a tenth of a second, which a program without host nodes need not spend

    node = onnx.NodeProto()
    try:
        node.ParseFromString(step.node)
    except Exception as error:  # protobuf's DecodeError, whose home depends on its version
        raise ModelError(f"node {step.name!r} ({step.op_type}) in the program is damaged: {error}") from error
    return node
