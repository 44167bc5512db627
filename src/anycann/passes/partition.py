"""Which engine runs each node: AiCore (native), AiCpu (its reference on the host), a view (no work), control flow, or later.

"Later" is what depends on a shape that only running can tell: those nodes become one deferred region, compiled once its inputs are there.
"""

from __future__ import annotations

from collections.abc import Callable
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.infer import infer_outputs
from anycann.graph.registry import Lowering, NotLowered, Registry, TensorType, static_type
from anycann.passes.specialise import CONTROL_FLOW
from anycann.support.errors import ModelError
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.expression import Const
from anycann.te.tensor import Tensor

AICORE, AICPU, VIEW, EMPTY, CONTROL, DEFERRED = "AiCore", "AiCpu", "view", "empty", "control", "deferred"


@dataclass(frozen=True)
class Engine:
    """Where a node runs, and why not on AiCore."""

    kind: str
    reason: str = ""


def assign_engines(graph: ir.Graph, registry: Registry, native: Callable[[ir.Node, list[Tensor]], str | None]) -> dict[ir.Node, Engine]:
    """The engine of every node. `native(node, tensors)` says why the code generator cannot take the lowered tensors, or None."""
    engines: dict[ir.Node, Engine] = {}
    later: set[ir.Value] = set()
    for node in graph:
        engine = _engine(node, registry, native)
        inputs = [v for v in node.inputs if v is not None]
        if any(v in later for v in (*inputs, *captured_values(node))):
            engine = Engine(DEFERRED)
        elif engine.kind == AICPU and not _is_view(node, registry) and _waits_for_shape(node, registry):
            engine = Engine(DEFERRED, engine.reason)
        engines[node] = engine
        if engine.kind == DEFERRED:
            later.update(node.outputs)
    for node in reversed(graph):
        engine = engines[node]
        if engine.kind == AICPU and _is_view(node, registry) and _is_read_later(node, engines) and _waits_for_shape(node, registry):
            engines[node] = Engine(DEFERRED, engine.reason)
    return engines


def _is_view(node: ir.Node, registry: Registry) -> bool:
    operator = registry.of(node)
    return operator is not None and operator.view


def _is_read_later(node: ir.Node, engines: dict[ir.Node, Engine]) -> bool:
    """Whether deferred nodes are all that reads its results: a view among them costs nothing, on the host some microseconds."""
    uses = [use.node for value in node.outputs for use in value.uses()]
    outputs = any(value.is_graph_output() for value in node.outputs)
    return bool(uses) and not outputs and all(user in engines and engines[user].kind == DEFERRED for user in uses)


def _waits_for_shape(node: ir.Node, registry: Registry) -> bool:
    """True if the node could be native once the shapes of its inputs are known. A graph input without a shape never gets one.

    A node whose result has a size that a value says, such as Tile's, is none of them.
    """
    operator = registry.of(node)
    if operator is None or operator.lower is None:
        return False
    unknown = [v for v in node.inputs if v is not None and v.producer() is not None and static_type(v) is None and _is_tensor(v)]
    return bool(unknown) and _shapes_suffice(node, registry, unknown)


def _shapes_suffice(node: ir.Node, registry: Registry, unknown: list[ir.Value]) -> bool:
    """Whether the outputs get a static type when every size of `unknown` is some number. True where that cannot be tried."""
    shapes = [value.shape for value in unknown]
    if any(shape is None for shape in shapes):
        return True
    try:
        for value, shape in zip(unknown, shapes, strict=True):
            assert shape is not None
            value.shape = ir.Shape([size if isinstance(size, int) else 1 for size in shape])
        inferred = zip(node.outputs, infer_outputs(node, registry), strict=True)
        return all(one.shape is not None and None not in one.shape for v, one in inferred if v.uses() or v.is_graph_output())
    except ModelError:
        return True
    finally:
        for value, shape in zip(unknown, shapes, strict=True):
            value.shape = shape


def _is_tensor(value: ir.Value) -> bool:
    """A numeric tensor, or a value nothing is known of."""
    return value.type is None or (isinstance(value.type, ir.TensorType) and value.dtype != ir.DataType.STRING)


def _engine(node: ir.Node, registry: Registry, native: Callable[[ir.Node, list[Tensor]], str | None]) -> Engine:
    if node.domain == "" and node.op_type in CONTROL_FLOW:
        return Engine(CONTROL if node.op_type != "SequenceMap" else AICPU)
    operator = registry.of(node)
    if operator is None or (operator.lower is None and not operator.view):
        return Engine(AICPU, "no native code for this operator")
    outputs = [static_type(v) for v in node.outputs]
    if any(t is None and (v.uses() or v.is_graph_output()) for t, v in zip(outputs, node.outputs, strict=True)):
        return Engine(AICPU, "the shape or type of its output is only known when it runs")
    if any(v is not None and static_type(v) is None for v in node.inputs):
        return Engine(AICPU, "an operand has no static tensor type")
    if all(t is None or math.prod(t.shape) == 0 for t in outputs):
        return Engine(EMPTY)
    if operator.view:
        engine = _try_lowering(node, registry, native)
        others = any(v.uses() or v.is_graph_output() for v in node.outputs[1:])
        return engine if engine.kind == AICPU or others else Engine(VIEW)
    if any((t := static_type(v)) is not None and math.prod(t.shape) == 0 for v in node.inputs if v is not None):
        return Engine(AICPU, "an operand is empty and the result is not")
    return _try_lowering(node, registry, native)


def _try_lowering(node: ir.Node, registry: Registry, native: Callable[[ir.Node, list[Tensor]], str | None]) -> Engine:
    try:
        tensors = lower_node(node, registry, {})
    except NotLowered as why:
        return Engine(AICPU, str(why))
    reason = native(node, tensors)
    return Engine(AICORE) if reason is None else Engine(AICPU, reason)


def lower_node(node: ir.Node, registry: Registry, known: dict[ir.Value, Tensor]) -> list[Tensor]:
    """The node's outputs as tensor expressions; operands come from `known`, or become placeholders added to it. Raises NotLowered."""
    operator = registry.of(node)
    if operator is None or operator.lower is None:
        raise NotLowered(f"no native code for {node.op_type}")
    inputs = tuple(None if v is None else tensor_of(v, known) for v in node.inputs)
    outputs = tuple(static_type(v) or TensorType(dtypes.float32, ()) for v in node.outputs)
    lowered = operator.lower(Lowering(node, inputs, outputs))
    return [lowered] if isinstance(lowered, Tensor) else list(lowered)


def tensor_of(value: ir.Value, known: dict[ir.Value, Tensor]) -> Tensor:
    """The tensor that stands for a value outside the group: a literal if it is one known number, else memory."""
    if value in known:
        return known[value]
    type_ = static_type(value)
    assert type_ is not None
    tensor: Tensor = te.placeholder(value.name or "", type_.shape, type_.dtype)
    if value.const_value is not None and value.const_value.size == 1:
        number = np.asarray(value.const_value.numpy()).reshape(-1)[0]
        literal = Const(number.item() if type_.dtype.kind != "float" else float(number), type_.dtype)
        tensor = te.compute(type_.shape, lambda *index: literal)
    known[value] = tensor
    return tensor


def captured_values(node: ir.Node) -> list[ir.Value]:
    """Outer values that the node's subgraphs use."""
    found: dict[ir.Value, None] = {}
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.update(dict.fromkeys(free_values(attribute.as_graph())))
    return list(found)


def free_values(graph: ir.Graph) -> list[ir.Value]:
    """Values used in a graph and defined outside of it, in order of first use."""
    inside: set[ir.Value] = set(graph.inputs) | set(graph.initializers.values())
    found: dict[ir.Value, None] = {}
    for node in graph:
        for value in (*(v for v in node.inputs if v is not None), *captured_values(node)):
            if value not in inside:
                found[value] = None
        inside.update(node.outputs)
    found.update({v: None for v in graph.outputs if v not in inside})
    return list(found)
