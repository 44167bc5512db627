"""The AiCpu engine: one node on the host, by its numpy meaning in `onnx.reference` or in `graph.reference`.

Both are imported when the first node is evaluated: they take 0.05 s, and few models need them while they are compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import defs, helper

from anycann.graph.sources import describe_proto
from anycann.graph.types import type_proto_of
from anycann.support.errors import DeviceError, ModelError, UnsupportedError

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

DOMAIN_VERSIONS = {"ai.onnx.ml": 5, "ai.onnx.preview.training": 1}  # any other domain is at version 1
CACHED_NODE_BYTES = 1 << 16  # larger nodes carry a constant, which the cache would keep alive


def evaluate_node(node: onnx.NodeProto, opset: int, inputs: Sequence[object], captures: Mapping[str, object] | None = None) -> list[object]:
    """The outputs of `node`, one for each entry of `node.output` (None where its name is "").

    `inputs` holds one host value for each entry of `node.input`: a numpy array, a list for a sequence, None where it is absent.
    `opset` is the version of the default domain. `captures` names the outer values that subgraphs of the node use.
    Raises UnsupportedError when the operator has no numpy meaning, ModelError when the operator refuses its inputs.
    """
    if len(inputs) != len(node.input):
        raise ModelError(f"{describe_proto(node)} has {len(node.input)} inputs, got {len(inputs)} values")
    values = {name: _as_host_value(value) for name, value in zip(node.input, inputs, strict=True) if name}
    feeds = {**(captures or {}), **values}
    evaluator = _evaluator(node, opset, feeds)
    names = [name for name in node.output if name]
    try:
        with np.errstate(all="ignore"):
            results = dict(zip(names, evaluator.run(names, feeds), strict=True))
    except NotImplementedError as error:
        raise UnsupportedError(f"{describe_proto(node)}: {_text(error)}") from error
    except MemoryError as error:
        raise DeviceError(f"{describe_proto(node)}: not enough memory for inputs {_describe_values(feeds)}: {_text(error)}") from error
    except Exception as error:
        raise ModelError(f"{describe_proto(node)} refuses its inputs {_describe_values(feeds)}: {_text(error)}") from error
    return [results[name] if name else None for name in node.output]


def has_reference(domain: str, op_type: str, opset: int) -> bool:
    """Whether `evaluate_node` knows operator `op_type` of `domain` at version `opset` of the default domain."""
    if any(operator.op_domain == domain and operator.__name__ == op_type for operator in _operators()):
        return True
    return defs.has(op_type, _opset_imports(opset).get(domain, 1), domain)


def captured_names(node: onnx.NodeProto) -> list[str]:
    """Names of outer values which the subgraphs of `node` use, in order of first use."""
    names: dict[str, None] = {}
    for graph in _subgraphs(node):
        names.update(dict.fromkeys(_free_names(graph)))
    return list(names)


def _evaluator(node: onnx.NodeProto, opset: int, feeds: Mapping[str, object]) -> ReferenceEvaluator:
    """A (cached) evaluator of `node`; the types of `feeds` are only looked at by operators whose function depends on them."""
    from onnx.reference.op_run import RuntimeContextError

    try:
        return build_evaluator(node, opset)
    except RuntimeContextError:
        types = tuple((name, type_proto_of(value).SerializeToString()) for name, value in feeds.items())
        return build_evaluator(node, opset, types)


def build_evaluator(node: onnx.NodeProto, opset: int, types: tuple[tuple[str, bytes], ...] | None = None) -> ReferenceEvaluator:
    """A (cached) evaluator of `node` for inputs of these types. Raises RuntimeContextError if it needs to know them."""
    from onnx.reference.op_run import RuntimeContextError

    if node.domain not in _opset_imports(opset):
        raise UnsupportedError(f"{describe_proto(node)}: no operator of domain {node.domain!r} is known")
    content = node.SerializeToString(deterministic=True)
    build = _build if len(content) <= CACHED_NODE_BYTES else _build.__wrapped__
    try:
        return build(content, opset, types)
    except RuntimeContextError:
        raise
    except (NotImplementedError, defs.SchemaError, KeyError) as error:
        raise UnsupportedError(f"{describe_proto(node)} has no implementation at opset {opset}: {_text(error)}") from error
    except Exception as error:
        raise ModelError(f"{describe_proto(node)} is malformed: {_text(error)}") from error


@lru_cache(maxsize=1024)
def _build(content: bytes, opset: int, types: tuple[tuple[str, bytes], ...] | None) -> ReferenceEvaluator:
    from onnx.reference import ReferenceEvaluator

    node = onnx.NodeProto.FromString(content)
    infos = [helper.make_value_info(name, onnx.TypeProto.FromString(type_)) for name, type_ in types or ()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", infos, outputs)
    return ReferenceEvaluator(graph, opsets=_opset_imports(opset), new_ops=list(_operators()))


def _operators() -> tuple[type[OpRun], ...]:
    from anycann.graph.reference import operators
    from anycann.graph.reference.defined import defined_operators

    return operators() + defined_operators()


def _opset_imports(opset: int) -> dict[str, int]:
    domains = dict.fromkeys((operator.op_domain for operator in _operators()), 1)
    return {**domains, **DOMAIN_VERSIONS, "": opset}


def _as_host_value(value: object) -> object:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Names used in `graph` and defined outside of it."""
    known = {"", *(info.name for info in graph.input), *(tensor.name for tensor in graph.initializer)}
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        used = [*node.input, *captured_names(node)]
        yield from (name for name in used if name not in known)
        known.update(node.output)
    yield from (info.name for info in graph.output if info.name not in known)


def _text(error: BaseException) -> str:
    """The innermost reason of a chained error, on one line: onnx.reference wraps what numpy said."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:400] or type(error).__name__


def _describe_values(feeds: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {_describe_value(value)}" for name, value in list(feeds.items())[:8]) or "(none)"


def _describe_value(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"list of {len(value)}" if isinstance(value, list) else type(value).__name__
