"""AiCpu steps: nodes without generated code, computed on the host by their numpy meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from anycann.om.plan import HostStep
from anycann.support.errors import ModelError, context

if TYPE_CHECKING:
    import onnx


class Evaluate(Protocol):
    """`graph.evaluate.evaluate_node`: the outputs of a node for its inputs (arrays, lists for sequences, None where absent)."""

    def __call__(
        self, node: onnx.NodeProto, opset: int, inputs: Sequence[object], captures: Mapping[str, object] | None = None
    ) -> Sequence[object]: ...


class HostRunner:
    """Runs host steps through `evaluate`; each node is parsed once. Safe in any thread if `evaluate` is."""

    def __init__(self, evaluate: Evaluate):
        self._evaluate = evaluate
        self._nodes: dict[bytes, onnx.NodeProto] = {}

    def run(self, step: HostStep, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        """The outputs of `step`, one for each of its output names. Errors say which node it was."""
        with context(f"while running node {step.name!r} ({step.op_type}) on the host"):
            node = self._nodes.get(step.node)
            if node is None:
                node = self._nodes[step.node] = _parse(step)
            return self._evaluate(node, step.opset, inputs, captures)


def _parse(step: HostStep) -> onnx.NodeProto:
    import onnx  # a tenth of a second, which a program without host nodes need not spend

    node = onnx.NodeProto()
    try:
        node.ParseFromString(step.node)
    except Exception as error:  # protobuf's DecodeError, whose home depends on its version
        raise ModelError(f"node {step.name!r} ({step.op_type}) in the program is damaged: {error}") from error
    return node
