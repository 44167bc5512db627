"""Given concrete input shapes, every node gets concrete types; what is known is computed now, and a decided If becomes its branch.

x: float32[2, ?], Shape(x) -> Gather -> Reshape      before
x: float32[2, 7], Reshape(x, [14])                   after specialising for x = [2, 7]

A value whose shape depends on data keeps no shape: the runtime meets it, and what follows is compiled then (passes/partition.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib

import numpy as np
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.infer import infer_outputs
from anycann.graph.registry import OPSET, Lowering, NotLowered, Registry, TensorType, library, static_type
from anycann.graph.types import STRING_KINDS
from anycann.passes.bags import sum_bags
from anycann.passes.branches import branch_types
from anycann.passes.unroll import unroll
from anycann.support.errors import AnyCANNError
from anycann.te import tensor as te

FOLD_LIMIT_BYTES = 64 * 1024 * 1024
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})


def specialise(graph: ir.Graph, input_types: Mapping[str, TensorType | None]) -> None:
    """Type every value of `graph` in place for inputs of these types (None: not a tensor, or of unknown shape). Raises ModelError."""
    _Specialiser(graph, library()).run(input_types)


class _Specialiser:
    def __init__(self, graph: ir.Graph, registry: Registry):
        self.graph, self.registry = graph, registry

    def run(self, input_types: Mapping[str, TensorType | None]) -> None:
        for value in self.graph.inputs:
            _set_type(value, input_types.get(value.name or ""))
        for node in self.graph:
            self._visit(node)

    def _visit(self, node: ir.Node) -> None:
        if node.op_type == "Resize" and node.domain == "":
            _drop_empty_operands(node)
        if node.op_type == "STFT" and node.domain == "" and "onesided" not in node.attributes:
            node.attributes.add(ir.AttrInt64("onesided", 1))  # ONNX's inference has another default than its specification
        if node.domain == "" and node.op_type in CONTROL_FLOW:
            self._control(node)
        elif node.domain == "" and node.op_type in ("Shape", "Size") and self._fold_shape(node):
            return
        elif not self._fold(node):
            self._infer(node)

    # ---- control flow
    def _control(self, node: ir.Node) -> None:
        condition = node.inputs[0] if node.inputs else None
        if node.op_type == "If" and condition is not None and condition.const_value is not None:
            taken = "then_branch" if bool(condition.const_value.numpy().reshape(-1)[0]) else "else_branch"
            self._inline(node, node.attributes[taken].as_graph())
            return
        if node.op_type == "Loop" and (made := unroll(self.graph, node) or sum_bags(self.graph, node)) is not None:
            for inner in made:
                self._visit(inner)
            return
        for output in node.outputs:
            output.shape = None
        if node.op_type == "If":
            types = branch_types(node, lambda branch: _Specialiser(branch, self.registry).run({}))
            for output, type_ in zip(node.outputs, types, strict=True):
                if type_ is not None:
                    _set_type(output, type_)

    def _inline(self, node: ir.Node, branch: ir.Graph) -> None:
        """If(true, then, else) -> the nodes of then."""
        for value in list(branch.initializers.values()):
            del branch.initializers[value.name or ""]
            value.name = f"{node.name}/{value.name}"
            self.graph.register_initializer(value)
        results = list(branch.outputs)
        nodes = list(branch)
        branch.outputs.clear()
        branch.remove(nodes)
        self.graph.insert_before(node, nodes)
        for old, new in zip(node.outputs, results, strict=True):
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)
        for inner in nodes:
            self._visit(inner)

    # ---- folding
    def _fold_shape(self, node: ir.Node) -> bool:
        source = static_type(node.inputs[0])
        if source is None:
            return False
        if node.op_type == "Size":
            replace_by_constants(self.graph, node, [np.array(int(np.prod(source.shape, dtype=np.int64)), np.int64)])
            return True
        rank = len(source.shape)
        start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", rank)
        replace_by_constants(self.graph, node, [np.array(source.shape[slice(start, end)], np.int64)])
        return True

    def _fold(self, node: ir.Node) -> bool:
        """Compute a node whose operands are all known; True if it was replaced by constants."""
        if node.op_type in RANDOM or any(v is not None and v.const_value is None for v in node.inputs):
            return False
        if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
            return False
        if self._output_bytes(node) > FOLD_LIMIT_BYTES:
            return False
        try:
            results = self._results(node)
        except AnyCANNError:
            return False
        arrays = [np.asarray(result) for result in results if isinstance(result, np.ndarray | np.generic)]
        if len(arrays) < len(results) or any(array.dtype.kind in STRING_KINDS for array in arrays):
            return False  # text gains nothing, and as an array it is no tensor that ONNX writes
        replace_by_constants(self.graph, node, arrays)
        return True

    def _results(self, node: ir.Node) -> Sequence[object]:
        """The outputs of a node whose operands are all known. Raises AnyCANNError."""
        operator, types = self.registry.of(node), [static_type(output) for output in node.outputs]
        if operator is not None and operator.fold is not None:
            tensors = [None if (type_ := static_type(v)) is None else te.placeholder("", type_.shape, type_.dtype) for v in node.inputs]
            with contextlib.suppress(NotLowered):
                return operator.fold(Lowering(node, tuple(tensors), tuple(type_ for type_ in types if type_ is not None)))
        operands = [None if v is None or v.const_value is None else v.const_value.numpy() for v in node.inputs]
        return evaluate_node(ir.serde.serialize_node(node), OPSET, operands)

    def _output_bytes(self, node: ir.Node) -> int:
        """An upper bound for operators whose result can be far larger than their operands."""
        if node.op_type == "Range":  # its inference refuses operands of one element that are no scalars, as exporters write them
            start, limit, delta = (float(np.asarray(v.const_value).reshape(-1)[0]) for v in node.inputs if v is not None)
            return int(min(max((limit - start) / delta, 0.0), 1e15)) * 8 if delta else 0
        if node.op_type == "ConstantOfShape" and node.inputs[0] is not None and node.inputs[0].const_value is not None:
            return int(np.prod(node.inputs[0].const_value.numpy().astype(np.float64), initial=1.0)) * 8
        self._infer(node)
        types = [static_type(v) for v in node.outputs]
        return max((int(np.prod(t.shape, dtype=np.float64)) * t.dtype.nbytes for t in types if t is not None), default=0)

    # ---- types
    def _infer(self, node: ir.Node) -> None:
        for output, inferred in zip(node.outputs, infer_outputs(node, self.registry), strict=True):
            if inferred.type is not None:
                output.type = inferred.type
            output.shape = None if inferred.shape is None else ir.Shape(inferred.shape)


def replace_by_constants(graph: ir.Graph, node: ir.Node, arrays: Sequence[np.ndarray]) -> None:
    """A node whose results are known -> constants of their names, where somebody reads them."""
    for output, array in zip(node.outputs, arrays, strict=False):
        if not output.uses() and not output.is_graph_output():
            continue
        constant = ir.Value(name=output.name, shape=ir.Shape(array.shape), type=output.type, const_value=ir.tensor(array, name=output.name))
        constant.dtype = constant.const_value.dtype  # type: ignore[union-attr]
        output.name = f"{output.name}/folded"
        graph.register_initializer(constant)
        output.replace_all_uses_with(constant, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def _drop_empty_operands(node: ir.Node) -> None:
    """Resize(x, [], [], sizes) -> Resize(x, , , sizes): exporters leave operands out by giving empty ones, in every opset."""
    for number, value in enumerate(node.inputs):
        if number and value is not None and value.const_value is not None and value.const_value.size == 0:
            node.replace_input_with(number, None)


def _set_type(value: ir.Value, type_: TensorType | None) -> None:
    if type_ is None:
        value.shape = None
        return
    value.type = ir.TensorType(ir.DataType.from_numpy(type_.dtype.numpy))
    value.shape = ir.Shape(type_.shape)
