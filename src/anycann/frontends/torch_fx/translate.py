"""Nodes of an FX graph of ATen operators -> a GE graph. All is static: dtypes, shapes and strides are those of the meta values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import operator
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, onnx_dtype
from anycann.frontends.torch_fx.stacked import FLATTENING, stacked_product, stacked_shape
from anycann.frontends.torch_fx.table import DEVICE, Call, NotTranslated, translations
from anycann.graph.registry import OPSET
from anycann.support.records import dataclass

IR_VERSION = 11
OPSETS = {"": OPSET, DEVICE: 1, "com.microsoft": 1}


@dataclass(frozen=True)
class Port:
    """A tensor at the border of a graph as it lies in memory. `order`: the axes from slowest to fastest, None if that is theirs."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    order: tuple[int, ...] | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The sizes in the order of the memory."""
        return self.shape if self.order is None else tuple(self.shape[axis] for axis in self.order)


@dataclass(frozen=True)
class Translated:
    """A GE graph, its inputs and outputs in order."""

    model: ir.Model
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def why_not(node: torch.fx.Node) -> str | None:
    """None if this call of an operator has a translation, else the reason."""
    if node.target is operator.getitem:
        return None
    if str(node.target) not in translations():
        return "no translation"
    try:
        builder = Builder({source: _stand_in(source) for source in node.all_input_nodes})
        for fake in _tensors(node.meta.get("val")):
            _check_static(fake)
        translate_call(node, builder)
    except NotTranslated as reason:
        return str(reason)
    return None


def translate_call(node: torch.fx.Node, builder: Builder) -> Any:
    """The value, or the values, that a call becomes. Raises NotTranslated."""
    call = bind(node)
    builder.begin(node.name)
    results = translations()[str(node.target)](builder, call)
    pairs = [(results, call.result)] if isinstance(results, ir.Value) else list(zip(results, call.result, strict=True))
    for value, fake in pairs:
        if value is not None and value.type is None and isinstance(fake, torch.Tensor):
            value.type = ir.TensorType(onnx_dtype(fake.dtype))
    return results


def bind(node: torch.fx.Node) -> Call:
    """The arguments of a call by name."""
    schema = node.target._schema
    arguments: dict[str, Any] = {}
    for position, argument in enumerate(schema.arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        arguments[argument.name] = given
    return Call(schema.name.split("::")[1], arguments, node.meta["val"], used_results(node))


def used_results(node: torch.fx.Node) -> frozenset[int]:
    """Which results of an operator with several are read."""
    return frozenset(int(user.args[1]) for user in node.users if user.target is operator.getitem and user.users)


def translate(
    nodes: Sequence[torch.fx.Node],
    inputs: Sequence[torch.fx.Node],
    outputs: Sequence[torch.fx.Node],
    constants: Mapping[torch.fx.Node, np.ndarray] | None = None,
) -> Translated:
    """The graph of `nodes`, which are in an order that runs. `constants` are values of nodes that are known. Raises NotTranslated."""
    values: dict[torch.fx.Node, Any] = {}
    builder = Builder(values)
    for node, array in (constants or {}).items():
        builder.begin(node.name)
        values[node] = builder.array(array)
    ports = tuple(port_of(node) for node in inputs)
    given = [_input(port) for port in ports]
    for node, port, value in zip(inputs, ports, given, strict=True):
        builder.begin(f"{port.name}/order")
        values[node] = value if port.order is None else _typed(builder.op("Transpose", value, perm=_inverse(port.order)), node)
    for node in nodes:
        _translate_node(node, builder, values)
    results = [port_of(node) for node in outputs]
    stored = [_output(builder, values[node], port, n) for n, (node, port) in enumerate(zip(outputs, results, strict=True))]
    graph = ir.Graph(
        given, stored, nodes=builder.nodes, initializers=tuple(builder.constants.values()), opset_imports=OPSETS,
        name="torch",
    )  # fmt: skip
    return Translated(ir.Model(graph, ir_version=IR_VERSION), ports, tuple(results))


def _translate_node(node: torch.fx.Node, builder: Builder, values: dict[torch.fx.Node, Any]) -> None:
    """What a node becomes; products that are flattened and put back into shape are not."""
    if node.target is operator.getitem:
        values[node] = values[node.args[0]][node.args[1]]
        return
    shape = stacked_shape(node, values)
    if shape is None:
        if node not in values:
            values[node] = translate_call(node, builder)
        return
    product = _typed(stacked_product(builder, node), node)
    values[node] = _typed(builder.reshape(product, node.meta["val"].shape), node)
    values.update({user: product for user in node.users if str(user.target) in FLATTENING and tuple(user.meta["val"].shape) == shape})


def port_of(node: torch.fx.Node) -> Port:
    """How the tensor of a node lies at the border."""
    fake = node.meta["val"]
    return Port(node.name, fake.dtype, tuple(int(size) for size in fake.shape), memory_order(fake))


def memory_order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest; None for row-major, and for a tensor with gaps, which is taken as if it were."""
    return None if fake.is_contiguous() else dense_order(fake)


def dense_order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """The order of axes in which a tensor is row-major; None if its memory has gaps or shows elements twice."""
    strides = [int(stride) for stride in fake.stride()]
    order = tuple(sorted(range(fake.dim()), key=lambda axis: (-strides[axis], fake.shape[axis] != 1)))
    step = 1
    for axis in reversed(order):
        if fake.shape[axis] != 1 and strides[axis] != step:
            return None
        step *= int(fake.shape[axis])
    return order


def _input(port: Port) -> ir.Value:
    return ir.Value(name=f"in/{port.name}", type=ir.TensorType(onnx_dtype(port.dtype)), shape=ir.Shape(port.stored_shape))


def _output(builder: Builder, value: ir.Value, port: Port, number: int) -> ir.Value:
    """A value of its own name for each output, in the order of the memory."""
    builder.begin(f"out/{number}/{port.name}")
    result = builder.op("Identity", value) if port.order is None else builder.op("Transpose", value, perm=list(port.order))
    result.type, result.shape = ir.TensorType(onnx_dtype(port.dtype)), ir.Shape(port.stored_shape)
    return result


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


def _typed(value: ir.Value, node: torch.fx.Node) -> ir.Value:
    value.type = ir.TensorType(onnx_dtype(node.meta["val"].dtype))
    return value


def _stand_in(source: torch.fx.Node) -> Any:
    fakes = source.meta.get("val")
    if isinstance(fakes, torch.Tensor):
        _check_static(fakes)
        return ir.Value(name=source.name, type=ir.TensorType(onnx_dtype(fakes.dtype)))
    raise NotTranslated(f"{source.name} is no tensor")


def _check_static(fake: torch.Tensor) -> None:
    """Raises NotTranslated for a tensor that kernels do not know."""
    onnx_dtype(fake.dtype)
    if not all(isinstance(size, int) for size in (*fake.shape, *fake.stride())):
        raise NotTranslated("a size that only running can tell")
    if fake.layout != torch.strided:
        raise NotTranslated(f"a tensor of layout {fake.layout}")


def _tensors(value: Any) -> list[torch.Tensor]:
    many = value if isinstance(value, tuple | list) else [value]
    if not all(fake is None or isinstance(fake, torch.Tensor) for fake in many):
        raise NotTranslated("a result that is no tensor")
    return [fake for fake in many if fake is not None]
