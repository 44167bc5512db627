"""The operator information library: one definition per operator. ONNX gives attributes, inference and reference; we add the lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cache, lru_cache
import importlib
import pkgutil
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.tensor import Tensor

OPSET = 26  # the one opset a graph has inside (frontends/onnx/upgrade.py)


class NotLowered(Exception):
    """This node has no native code; the text says why. It goes to the engine AiCpu."""


@dataclass(frozen=True)
class TensorType:
    """A static type."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Sample:
    """One node for the tests: operands (None for an absent one) and attributes. `constant`: operand numbers given as initialisers."""

    operands: tuple[np.ndarray | None, ...]
    attributes: dict[str, object] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    outputs: int = 1


@dataclass(frozen=True)
class Lowering:
    """What a lowering is given: the node, its operands as tensors (None for an absent one), and the inferred types of its outputs."""

    node: ir.Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[TensorType, ...]

    def attribute(self, name: str) -> object:
        """The attribute's value, or its default in the operator's schema, or None."""
        given = self.node.attributes.get(name)
        if given is not None:
            return given.value
        return schema_defaults(self.node.domain, self.node.op_type).get(name)

    def integer(self, name: str, default: int = 0) -> int:
        value = self.attribute(name)
        return default if value is None else int(value)  # type: ignore[call-overload]

    def number(self, name: str, default: float = 0.0) -> float:
        value = self.attribute(name)
        return default if value is None else float(value)  # type: ignore[arg-type]

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self.attribute(name)
        return None if value is None else tuple(int(v) for v in value)  # type: ignore[attr-defined]

    def text(self, name: str, default: str = "") -> str:
        value = self.attribute(name)
        return default if value is None else value.decode() if isinstance(value, bytes) else str(value)

    def constant(self, number: int) -> np.ndarray | None:
        """The value of operand `number` if it is known while compiling, None if it is absent. Raises NotLowered if it is computed."""
        if number >= len(self.node.inputs) or self.node.inputs[number] is None:
            return None
        value = self.node.inputs[number]
        assert value is not None
        if value.const_value is None:
            raise NotLowered(f"operand {number} is computed at run time")
        return value.const_value.numpy()

    def operand(self, number: int) -> Tensor:
        """Operand `number`, which must be there."""
        if number >= len(self.inputs) or self.inputs[number] is None:
            raise NotLowered(f"operand {number} is absent")
        tensor = self.inputs[number]
        assert tensor is not None
        return tensor

    def has(self, number: int) -> bool:
        return number < len(self.inputs) and self.inputs[number] is not None


Lower: TypeAlias = Callable[[Lowering], Sequence[Tensor] | Tensor]
Samples: TypeAlias = Callable[["np.random.Generator"], Iterable[Sample]]  # quoted: numpy imports it when it is asked for
Infer: TypeAlias = Callable[[ir.Node, Sequence[TensorType | None]], Sequence[TensorType]]
Reference: TypeAlias = Callable[..., object]
Host: TypeAlias = Callable[..., Sequence[object]]
Fold: TypeAlias = Callable[[Lowering], "Sequence[np.ndarray]"]


@dataclass(frozen=True)
class Operator:
    """Everything the project knows of an operator beyond ONNX's own schema and reference.

    lower: operands -> tensor expressions (one per output); None: AiCpu. view: the output is the operand's elements in the same order.
    infer, reference: only for operators ONNX has no schema of; reference(*operands, **attributes) is the numpy meaning, an array or a
    tuple of arrays, given the attributes the node states. host: the same meaning for AiCpu, as fast as numpy can, as a tuple of arrays;
    where it raises, the reference is asked. quick: as `host` to a few units in the last place, for sizes that change from call to call;
    a ModelError that it raises is final. fold: the outputs where all operands are known, if the reference takes long for large ones.
    Raises NotLowered as `lower` does.
    """

    op_type: str
    domain: str = ""
    lower: Lower | None = None
    samples: Samples | None = None
    view: bool = False
    infer: Infer | None = None
    reference: Reference | None = None
    host: Host | None = None
    quick: Host | None = None
    fold: Fold | None = None


class Registry:
    """Operators by (domain, type)."""

    def __init__(self) -> None:
        self._operators: dict[tuple[str, str], Operator] = {}

    def add(self, operator: Operator) -> None:
        key = (operator.domain, operator.op_type)
        assert key not in self._operators, f"{key} is defined twice"
        self._operators[key] = operator

    def find(self, domain: str, op_type: str) -> Operator | None:
        return self._operators.get(("" if domain == "ai.onnx" else domain, op_type))

    def of(self, node: ir.Node) -> Operator | None:
        return self.find(node.domain, node.op_type)

    def all(self) -> tuple[Operator, ...]:
        return tuple(self._operators.values())


_collecting = Registry()


def operator(
    op_type: str,
    *,
    domain: str = "",
    samples: Samples | None = None,
    view: bool = False,
    infer: Infer | None = None,
    reference: Reference | None = None,
    host: Host | None = None,
    quick: Host | None = None,
    fold: Fold | None = None,
) -> Callable[[Lower], Lower]:
    """Define an operator by its lowering: `@operator("Relu", samples=floats)`."""

    def define(lower: Lower) -> Lower:
        _collecting.add(Operator(op_type, domain, lower, samples, view, infer, reference, host, quick, fold))
        return lower

    return define


def declare(op_type: str, **facts: object) -> None:
    """Define an operator without a lowering (views)."""
    _collecting.add(Operator(op_type, **facts))  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def library() -> Registry:
    """All operators, from the files of graph/ops."""
    from anycann.graph import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return _collecting


@cache
def schema(domain: str, op_type: str, version: int = OPSET) -> onnx.defs.OpSchema | None:
    """ONNX's schema, of a deprecated operator the last one; None if it has none."""
    try:
        found = onnx.defs.get_schema(op_type, version if domain in ("", "ai.onnx") else 5, "" if domain == "ai.onnx" else domain)
        return onnx.defs.get_schema(op_type, found.since_version - 1, found.domain) if found.deprecated else found
    except onnx.defs.SchemaError:
        return None


@cache
def schema_defaults(domain: str, op_type: str) -> dict[str, object]:
    """Default values of the attributes, as Python values."""
    found = schema(domain, op_type)
    if found is None:
        return {}
    return {
        name: onnx.helper.get_attribute_value(attribute.default_value)
        for name, attribute in found.attributes.items()
        if attribute.default_value is not None and attribute.default_value.type
    }


@cache
def dtype_of(data_type: ir.DataType | None) -> DType | None:
    """The element type kernels know; None for one they do not (strings, int4, float8, complex)."""
    if data_type is None or data_type == ir.DataType.STRING:
        return None
    try:
        return dtypes.BY_NAME.get(str(np.dtype(data_type.numpy())))
    except TypeError:
        return None


def static_type(value: ir.Value | None) -> TensorType | None:
    """The type of a value with known dtype and shape; None for any other value."""
    if value is None or value.shape is None or not isinstance(value.type, ir.TensorType):
        return None
    dtype = dtype_of(value.dtype)
    if dtype is None or any(not isinstance(size, int) for size in value.shape):
        return None
    return TensorType(dtype, tuple(int(size) for size in value.shape))  # type: ignore[arg-type]
