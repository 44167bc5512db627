"""The nodes of the GE graph that one call of an aten operator becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from anycann.frontends.torch_fx.table import NotTranslated

DTYPES: dict[torch.dtype, ir.DataType] = {
    torch.float32: ir.DataType.FLOAT, torch.float64: ir.DataType.DOUBLE, torch.float16: ir.DataType.FLOAT16,
    torch.bfloat16: ir.DataType.BFLOAT16, torch.int8: ir.DataType.INT8, torch.int16: ir.DataType.INT16, torch.int32: ir.DataType.INT32,
    torch.int64: ir.DataType.INT64, torch.uint8: ir.DataType.UINT8, torch.bool: ir.DataType.BOOL,
}  # fmt: skip
LARGEST_CONSTANT = 1 << 20  # elements of a value that is written out here rather than computed when the model is compiled


class Builder:
    """Collects nodes. `values` holds what FX nodes became: a value, or the values of an operator with several results.

    Nodes and values are named after `prefix`, which `begin` sets to the name of the FX node.
    """

    def __init__(self, values: Mapping[torch.fx.Node, Any]):
        self._values = values
        self.nodes: list[ir.Node] = []
        self.constants: dict[str, ir.Value] = {}
        self._prefix = "v"
        self._count = 0

    def begin(self, prefix: str) -> None:
        """What follows belongs to the FX node of this name."""
        self._prefix, self._count = prefix, 0

    # ---- what was given
    def value(self, argument: Any, dtype: torch.dtype | None = None) -> ir.Value:
        """The value of an argument, cast to `dtype` if one is named; a number becomes a constant of that dtype."""
        if isinstance(argument, torch.fx.Node):
            found = self._values[argument]
            if not isinstance(found, ir.Value):
                raise NotTranslated(f"{argument.name} is no single tensor")
            return found if dtype is None else self.cast(found, dtype)
        if isinstance(argument, bool | int | float):
            return self.scalar(argument, dtype or _dtype_of_number(argument))
        raise NotTranslated(f"an argument is a {type(argument).__name__}")

    def optional(self, argument: Any, dtype: torch.dtype | None = None) -> ir.Value | None:
        """As `value`; None stays None."""
        return None if argument is None else self.value(argument, dtype)

    def is_computed(self, argument: Any) -> bool:
        """Whether an argument is only known when the graph runs."""
        found = self._values.get(argument) if isinstance(argument, torch.fx.Node) else None
        return isinstance(found, ir.Value) and found.const_value is None

    # ---- what is said
    def op(self, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any) -> ir.Value:
        """Add a node with one result."""
        return self.ops(op_type, *inputs, count=1, domain=domain, **attributes)[0]

    def ops(self, op_type: str, *inputs: ir.Value | None, count: int, domain: str = "", **attributes: Any) -> Sequence[ir.Value]:
        """Add a node with `count` results."""
        name = self._name()
        outputs = [ir.Value(name=name if count == 1 else f"{name}:{n}") for n in range(count)]
        given = {key: value for key, value in attributes.items() if value is not None}
        node = ir.Node(domain, op_type, list(inputs), ir.convenience.convert_attributes(given), outputs=outputs, name=name)
        self.nodes.append(node)
        return outputs

    def cast(self, value: ir.Value, dtype: torch.dtype) -> ir.Value:
        """`value` in another dtype; itself if it is known to have it."""
        wanted = onnx_dtype(dtype)
        if value.dtype == wanted:
            return value
        result = self.op("Cast", value, to=int(wanted))
        result.type = ir.TensorType(wanted)
        return result

    def array(self, values: np.ndarray) -> ir.Value:
        """A constant."""
        name = f"{self._name()}/constant"
        tensor = ir.tensor(np.asarray(values, order="C"), name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(values.shape), const_value=tensor)
        self.constants[name] = value
        return value

    def integers(self, *values: int) -> ir.Value:
        """A row of int64: sizes, axes, places."""
        return self.array(np.array(values, np.int64))

    def scalar(self, number: bool | int | float, dtype: torch.dtype) -> ir.Value:
        """A constant without dimensions."""
        return self.array(np.array(number).astype(numpy_dtype(dtype)))

    def full(self, number: bool | int | float, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
        """A constant of equal elements."""
        if int(np.prod(shape, dtype=np.int64)) > LARGEST_CONSTANT:
            return self.op("Expand", self.scalar(number, dtype), self.integers(*shape))
        return self.array(np.full(shape, number).astype(numpy_dtype(dtype)))

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """The elements of `value` in another shape."""
        return self.op("Reshape", value, self.integers(*shape), allowzero=1)

    def _name(self) -> str:
        self._count += 1
        return self._prefix if self._count == 1 else f"{self._prefix}/{self._count}"


# ---- facts
def onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    """ONNX's element type. Raises NotTranslated for one that kernels do not know (complex, quantised)."""
    found = DTYPES.get(dtype)
    if found is None:
        raise NotTranslated(f"dtype {dtype}")
    return found


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """numpy's dtype, bfloat16 included."""
    return onnx_dtype(dtype).numpy()


def meta(argument: Any) -> Any:
    """The fake tensor of an argument that is a node; a number stays one."""
    return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument


def shape_of(argument: Any) -> tuple[int, ...]:
    """Sizes of an argument."""
    return tuple(int(size) for size in meta(argument).shape)


def common_dtype(*arguments: Any) -> torch.dtype:
    """The dtype in which operators on these arguments compute, by PyTorch's rules of promotion."""
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
    found: torch.dtype = elementwise_dtypes(*(meta(argument) for argument in arguments), type_promotion_kind=kind)[1]
    return found


def axis_of(dim: int, rank: int) -> int:
    """An axis counted from the front."""
    return dim % rank if rank else 0


def axes_of(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; none named means all of them."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    return tuple(axis_of(dim, rank) for dim in ([dims] if isinstance(dims, int) else dims))


def _dtype_of_number(number: bool | int | float) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    return torch.int64 if isinstance(number, int) else torch.float32
