"""A node that runs many times on the host: its numpy meaning called as it is, without what `evaluate_node` does around it each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
from onnx.helper import get_attribute_value
from onnx.reference.op_run import OpFunction, OpRun, RuntimeContextError
from onnx.reference.ops._op import OpRunBinaryNumpy

from anycann.graph.evaluate import CACHED_NODE_BYTES, build_evaluator, evaluate_node
from anycann.graph.registry import library
from anycann.support.errors import AnyCANNError, ModelError

_HOST_TYPES = frozenset((np.ndarray, list))


class PreparedNode:
    """`evaluate_node(node, opset, ...)` for one node; the same values, and the same errors. Safe in any thread.

    quick: a few units in the last place may be others, where the operator has a meaning that is quicker so; nodes that are alike but for
    their names have one operator, for layers are equal and making one takes half a millisecond. quiet: numpy's warnings are off
    around all calls. stated: the attributes that the node states.
    """

    def __init__(self, node: onnx.NodeProto, opset: int, quick: bool = False, quiet: bool = False):
        self._node, self._opset = node, opset
        defined, operator = library().find(node.domain, node.op_type), (_shared if quick else _operator)(node, opset)
        run: Callable[..., Sequence[object]] | None = None if operator is None else _function(operator)
        if defined is not None:
            run = (defined.quick if quick else None) or defined.host or run
        self._run = run if run is None or quiet else without_warnings(run)
        self._inputs, self._outputs = len(node.input), len(node.output)
        self.stated = _stated(node)
        self._attributes = self.stated if operator is None else {name: getattr(operator, name) for name in operator.attributes_names_}
        self._unnamed = [number for number, name in enumerate(node.output) if not name]

    def __call__(self, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> Sequence[object]:
        """One value for each output, as `evaluate_node` gives them."""
        results = self._quickly(inputs) if self._run is not None and len(inputs) == self._inputs else None
        return evaluate_node(self._node, self._opset, inputs, captures) if results is None else results

    def _quickly(self, inputs: Sequence[object]) -> list[object] | None:
        """The outputs, or None if something is not as usual; then `evaluate_node` gives them, or says what is wrong.

        Raises ModelError where a quick meaning refuses what the reference would take.
        """
        assert self._run is not None
        try:
            results = self._run(*[_value(each) if isinstance(each, np.generic) else each for each in inputs], **self._attributes)
        except ModelError:
            raise
        except Exception:
            return None
        values = [each if type(each) is np.ndarray else _value(each) for each in results]
        if len(values) != self._outputs or not _HOST_TYPES.issuperset(map(type, values)):
            return None
        for number in self._unnamed:
            values[number] = None
        return values


def without_warnings(run: Callable[..., Sequence[object]]) -> Callable[..., Sequence[object]]:
    """`run` while numpy's warnings are off. Numpy 2 does so in a third of the time of a `with`; numpy 1 not safely in several threads."""

    def entering(*operands: object, **attributes: object) -> Sequence[object]:
        with np.errstate(all="ignore"):
            return run(*operands, **attributes)

    return np.errstate(all="ignore")(run) if np.__version__[0] != "1" else entering


def _function(operator: OpRun) -> Callable[..., Sequence[object]]:
    """What an operator of the reference computes; that of two operands by numpy's function alone, without a check of its result."""
    if not isinstance(operator, OpRunBinaryNumpy) or type(operator)._run is not OpRunBinaryNumpy._run:
        run: Callable[..., Sequence[object]] = operator._run
        return run
    function = operator.numpy_fct
    return lambda a, b: (function(a, b),)


def _value(value: object) -> object:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _stated(node: onnx.NodeProto) -> dict[str, object]:
    """The attributes that a node states, text as such: of an operator that the reference makes for each type anew, such as Gelu."""
    values = {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def _shared(node: onnx.NodeProto, opset: int) -> OpRun | None:
    """The operator of all nodes that differ from this one in names alone."""
    if node.ByteSize() > CACHED_NODE_BYTES:
        return None
    like = onnx.NodeProto()
    like.CopyFrom(node)
    like.name = like.op_type
    like.input[:] = [f"x{number}" if name else "" for number, name in enumerate(node.input)]
    like.output[:] = [f"y{number}" if name else "" for number, name in enumerate(node.output)]
    return _operator_of(like.SerializeToString(deterministic=True), opset)


@lru_cache(maxsize=1024)
def _operator_of(node: bytes, opset: int) -> OpRun | None:
    return _operator(onnx.NodeProto.FromString(node), opset)


def _operator(node: onnx.NodeProto, opset: int) -> OpRun | None:
    """The operator of `onnx.reference` if it needs nothing but operands and attributes of its own."""
    if node.ByteSize() > CACHED_NODE_BYTES:
        return None
    try:
        (operator,) = build_evaluator(node, opset).rt_nodes_
    except (AnyCANNError, RuntimeContextError, ValueError):
        return None
    context = isinstance(operator, OpFunction) or operator.need_context() or operator.has_subgraph or operator.has_linked_attribute
    known = all(hasattr(operator, name) for name in operator.attributes_names_)
    return operator if known and not context else None
