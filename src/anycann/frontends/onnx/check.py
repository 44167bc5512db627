"""Is a ModelProto well formed: versions, names, scopes, order. In Python only, so that no file can bring the process down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.message import Message
import onnx

from anycann.frontends.onnx.check_nodes import canonical_domain, check_node
from anycann.frontends.onnx.check_tensors import check_sparse, check_tensor
from anycann.frontends.onnx.wire import MAX_DEPTH
from anycann.graph.evaluate import captured_names
from anycann.graph.sources import describe_proto
from anycann.support.errors import ModelError, UnsupportedError

IR_VERSIONS = range(3, 14)
OPSETS = range(6, 27)  # of the default domain
NEWEST_OPSET = OPSETS[-1]

Functions = frozenset[tuple[str, str]]


def check_model(model: onnx.ModelProto) -> None:
    """Raises ModelError if `model` is malformed, UnsupportedError if it asks for versions or operators unknown here."""
    if not model.HasField("graph"):
        raise ModelError("not an ONNX model: there is no graph in it")
    if model.ir_version not in IR_VERSIONS:
        found = "no IR version" if not model.ir_version else f"IR version {model.ir_version}"
        error = UnsupportedError if model.ir_version else ModelError
        raise error(f"the model has {found}; {IR_VERSIONS[0]} to {IR_VERSIONS[-1]} are accepted")
    _check_text(model, "the model", 0)
    opsets = opset_imports(model.opset_import, "the model")
    functions = _check_functions(model)
    check_graph(model.graph, opsets, functions, frozenset())


def _check_text(message: Message, where: str, depth: int) -> None:
    """Raises ModelError for text that is not UTF-8 (protobuf gives it as bytes) and for messages nested deeper than a file can hold."""
    if depth > MAX_DEPTH:
        raise ModelError(f"{where}: graphs nest too deep; {MAX_DEPTH} levels of messages are accepted")
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            broken = next((item for item in ([value] if isinstance(value, (str, bytes)) else value) if isinstance(item, bytes)), None)
            if broken is not None:
                raise ModelError(f"{where}: {field.name} {broken[:40]!r} is not UTF-8 text")
        elif field.type == field.TYPE_MESSAGE:
            for item in [value] if isinstance(value, Message) else value:
                _check_text(item, describe_proto(item) if isinstance(item, onnx.NodeProto) else where, depth + 1)


def opset_imports(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """Domain -> version. Raises ModelError when a domain is imported in two versions, UnsupportedError for versions out of range."""
    versions: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(f"{where} imports domain {domain!r} in versions {versions[domain]} and {entry.version}")
    default = versions.get("")
    if default is not None and default > NEWEST_OPSET:
        raise UnsupportedError(f"{where} uses opset {default}; {OPSETS[0]} to {NEWEST_OPSET} are accepted")
    if default is not None and default < 1:
        raise ModelError(f"{where} imports opset {default}; {OPSETS[0]} to {NEWEST_OPSET} are accepted")
    return versions


def check_graph(graph: onnx.GraphProto, opsets: Mapping[str, int], functions: Functions, outer: frozenset[str]) -> None:
    """Names, order, nodes and tensors of `graph`; `outer` are the names that enclosing graphs define."""
    defined = _defined_names(graph)
    visible = frozenset(defined) | outer
    for tensor in graph.initializer:
        check_tensor(tensor, f"initialiser {tensor.name!r}")
    for sparse in graph.sparse_initializer:
        check_sparse(sparse, f"sparse initialiser {sparse.values.name!r}")
    _check_nodes(graph.node, opsets, functions, visible)
    for output in graph.output:
        if output.name not in visible:
            raise ModelError(f"graph {graph.name!r}: output {output.name!r} is computed by no node")
    check_order(graph.node)


def check_order(nodes: Sequence[onnx.NodeProto]) -> None:
    """Raises ModelError, naming the nodes, if nodes feed each other in a circle. Unsorted nodes without a circle are accepted."""
    pending = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{pending[name] for name in (*node.input, *captured_names(node)) if name in pending} for node in nodes]
    if all(needed < index for index, indices in enumerate(needs) for needed in indices):
        return
    users: list[list[int]] = [[] for _ in nodes]
    missing = [len(indices) for indices in needs]
    for index, indices in enumerate(needs):
        for needed in indices:
            users[needed].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    while ready:
        for user in users[ready.pop()]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    blocked = {index for index, count in enumerate(missing) if count}
    if blocked:
        circle = _circle(needs, blocked)
        raise ModelError("nodes feed each other in a circle: " + " <- ".join(describe_proto(nodes[index]) for index in circle[:6]))


def _circle(needs: Sequence[set[int]], blocked: set[int]) -> list[int]:
    """The nodes of one circle among `blocked`, each before one it needs."""
    path: list[int] = []
    index = min(blocked)
    while index not in path:
        path.append(index)
        index = min(needs[index] & blocked)
    return path[path.index(index) :]


def _check_nodes(nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int], functions: Functions, visible: frozenset[str]) -> None:
    for node in nodes:
        check_node(node, opsets, functions)
        for name in node.input:
            if name and name not in visible:
                raise ModelError(f"{describe_proto(node)}: its input {name!r} is neither an input, an initialiser nor computed by a node")
        for attribute in node.attribute:
            where = f"{describe_proto(node)}: attribute {attribute.name!r}"
            for tensor in [attribute.t] if attribute.HasField("t") else [*attribute.tensors]:
                check_tensor(tensor, where)
            for sparse in [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else [*attribute.sparse_tensors]:
                check_sparse(sparse, where)
            for graph in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
                check_graph(graph, opsets, functions, visible)


def _defined_names(graph: onnx.GraphProto) -> set[str]:
    """Every name `graph` defines. Raises ModelError for a name defined twice (an initialiser may repeat an input: its default value)."""
    inputs = [info.name for info in graph.input]
    initialisers = [*(tensor.name for tensor in graph.initializer), *(sparse.values.name for sparse in graph.sparse_initializer)]
    for kind, names in (("input", inputs), ("initialiser", initialisers)):
        if "" in names or len(set(names)) < len(names):
            bad = next(name for name in names if not name or names.count(name) > 1)
            raise ModelError(f"graph {graph.name!r}: {kind} {bad!r} " + ("is defined twice" if bad else "has no name"))
    return _add_node_outputs(graph.node, {*inputs, *initialisers})


def _add_node_outputs(nodes: Iterable[onnx.NodeProto], defined: set[str]) -> set[str]:
    for node in nodes:
        for name in node.output:
            if name and name in defined:
                raise ModelError(f"{describe_proto(node)}: its output {name!r} is defined already (each name has one definition)")
            defined.add(name)
    return defined - {""}


def _check_functions(model: onnx.ModelProto) -> Functions:
    """Bodies of the model's functions; their names. Raises ModelError for a function that calls itself, directly or not."""
    keys = [(canonical_domain(function.domain), function.name) for function in model.functions]
    functions = frozenset(keys)
    calls = {
        key: {(canonical_domain(node.domain), node.op_type) for node in function.node}
        for key, function in zip(keys, model.functions, strict=True)
    }
    for key in keys:
        reached, ahead = set(), [*calls[key]]
        while ahead:
            callee = ahead.pop()
            if callee == key:
                raise ModelError(f"function {key[1]!r} of domain {key[0]!r} calls itself")
            if callee not in reached:
                reached.add(callee)
                ahead.extend(calls.get(callee, ()))
    for function in model.functions:
        where = f"function {function.name!r} of domain {function.domain!r}"
        opsets = opset_imports(function.opset_import, where)
        visible = frozenset(_add_node_outputs(function.node, set(function.input)))
        _check_nodes(function.node, opsets, functions, visible)
        check_order(function.node)
    return functions
