"""AiCpu steps: nodes without generated code, computed on the host by their numpy meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from anycann.om.plan import HostStep
from anycann.support.errors import AnyCANNError, ModelError, context

if TYPE_CHECKING:
    import onnx


class Evaluate(Protocol):
    """A node ready to run: its outputs for its inputs (arrays, lists for sequences, None where absent)."""

    def __call__(self, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]: ...


class Prepare(Protocol):
    """`graph.prepared.PreparedNode`: makes a node of a version of the default domain ready."""

    def __call__(self, node: onnx.NodeProto, opset: int) -> Evaluate: ...


class HostRunner:
    """Runs host steps by what `prepare` makes of their nodes, each once. Safe in any thread if that is."""

    def __init__(self, prepare: Prepare):
        self._prepare = prepare
        self._nodes: dict[tuple[bytes, int], Evaluate] = {}

    def run(self, step: HostStep, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        """The outputs of `step`, one for each of its output names. Errors say which node it was."""
        evaluate = self._nodes.get((step.node, step.opset))
        try:
            if evaluate is None:
                evaluate = self._nodes[step.node, step.opset] = self._prepare(_parse(step), step.opset)
            return evaluate(inputs, captures)
        except AnyCANNError:
            with context(f"while running node {step.name!r} ({step.op_type}) on the host"):
                raise


def _parse(step: HostStep) -> onnx.NodeProto:
    import onnx  # a tenth of a second, which a program without host nodes need not spend

    node = onnx.NodeProto()
    try:
        node.ParseFromString(step.node)
    except Exception as error:  # protobuf's DecodeError, whose home depends on its version
        raise ModelError(f"node {step.name!r} ({step.op_type}) in the program is damaged: {error}") from error
    return node
