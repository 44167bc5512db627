"""One operator of Ascend on its way to ONNX: what it was given, checked, and the nodes that say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from anycann.frontends.ascend_ops.definition import OperatorType
from anycann.om.operator_spec import OperandSpec, OperatorError, OperatorSpec, Part


class Builder:
    """Collects the nodes of `spec`. `inputs` are names by place in the row, "" for one that is left out; those of a `*` are in `rest`."""

    def __init__(
        self, spec: OperatorSpec, kind: OperatorType, places: Mapping[str, int], rest: Sequence[int], attributes: Mapping[str, Any]
    ):
        self.spec, self.kind, self.attributes = spec, kind, attributes
        self._places, self.rest_places = places, rest
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._cast: dict[tuple[str, str], str] = {}

    # ---- what was given
    def __getitem__(self, name: str) -> Any:
        """An attribute, or its default."""
        return self.attributes[name]

    def has(self, name: str) -> bool:
        """True if the input is there."""
        return name in self._places

    def input(self, name: str) -> str:
        """The value of an input, a constant if it is known beforehand; "" if it is left out."""
        if name not in self._places:
            return ""
        operand = self.operand(name)
        return input_name(self._places[name]) if operand.constant is None else self.constant(self.known(name), operand.dtype)

    def operand(self, name: str) -> OperandSpec:
        """What is said of an input."""
        return self.spec.inputs[self._places[name]]

    @property
    def rest(self) -> list[str]:
        """The values of the input that stands for many."""
        return [input_name(place) for place in self.rest_places]

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of an input, -1 for open ones."""
        return self.operand(name).shape

    def rank(self, name: str) -> int:
        """Number of sizes of an input."""
        return len(self.operand(name).shape)

    def known(self, name: str) -> np.ndarray:
        """The values of an input that must be known beforehand. Raises OperatorError if they are not."""
        operand = self.operand(name)
        if operand.constant is None:
            self.fail(
                "input", f"input {name} must be known beforehand: is_const and const_value in JSON, acl.set_tensor_const in a program"
            )
        return np.asarray(operand.constant).reshape(operand.shape)

    def axis(self, value: int, rank: int) -> int:
        """An axis that may count from the end. Raises OperatorError for one outside."""
        if not -rank <= value < max(rank, 1):
            self.fail("attribute", f"axis {value} is outside a tensor of {rank} sizes")
        return int(value)

    def fail(self, part: Part, text: str) -> None:
        """Raises OperatorError."""
        raise OperatorError(part, f"{self.spec.op}: {text}")

    # ---- what is said
    def node(self, op_type: str, *inputs: str, count: int = 1, **attributes: Any) -> str:
        """Add a node and return its (first) result."""
        return self.nodes_of(op_type, *inputs, count=count, **attributes)[0]

    def nodes_of(self, op_type: str, *inputs: str, count: int = 1, **attributes: Any) -> list[str]:
        """Add a node and return its results."""
        number = len(self.nodes)
        results = [f"v{number}_{n}" for n in range(count)]
        name = self.spec.op if not number else f"{self.spec.op}_{number}"
        self.nodes.append(onnx.helper.make_node(op_type, list(inputs), results, name, **attributes))
        return results

    def constant(self, values: object, dtype: str = "int64") -> str:
        """A value known beforehand."""
        name = f"c{len(self.constants)}"
        self._add_constant(name, np.asarray(values).astype(numpy_dtype(dtype)))
        return name

    def like(self, values: object, name: str) -> str:
        """A constant in the dtype of an input."""
        return self.constant(values, self.operand(name).dtype)

    def cast(self, value: str, dtype: str) -> str:
        """`value` in another dtype."""
        key = (value, dtype)
        if key not in self._cast:
            self._cast[key] = self.node("Cast", value, to=onnx_dtype(dtype))
        return self._cast[key]

    def integers(self, name: str) -> str:
        """An input as int64, one row: sizes, axes and places. What is known beforehand becomes a constant."""
        if self.operand(name).constant is not None:
            return self.constant(self.known(name).reshape(-1))
        found = self.input(name)
        wide = found if self.operand(name).dtype == "int64" else self.cast(found, "int64")
        return wide if self.rank(name) == 1 else self.node("Reshape", wide, self.constant([-1]))

    def nchw(self, value: str, format_: str) -> str:
        """An image with its channels second."""
        return self.node("Transpose", value, perm=[0, 3, 1, 2]) if format_ == "NHWC" else value

    def back(self, value: str, format_: str) -> str:
        """An image as `format_` has it."""
        return self.node("Transpose", value, perm=[0, 2, 3, 1]) if format_ == "NHWC" else value

    def image_format(self, name: str, attribute: str = "data_format") -> str:
        """NCHW or NHWC: what the input says, else the attribute. Raises OperatorError for others."""
        said = self.operand(name).format
        chosen = said if said != "ND" else str(self.attributes.get(attribute, "NCHW"))
        if chosen not in ("NCHW", "NHWC") or self.rank(name) != 4:
            self.fail("input", f"input {name} is {self.operand(name)}; accepted: four sizes, NCHW or NHWC")
        return chosen

    def _add_constant(self, name: str, array: np.ndarray) -> None:
        dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self.constants.append(onnx.helper.make_tensor(name, dtype, array.shape, array.tobytes(), raw=True))


def input_name(number: int) -> str:
    """Name of input number `number` in the graph."""
    return f"x{number}"


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype of that name, bfloat16 included."""
    return np.dtype(getattr(ml_dtypes, name, name))


def onnx_dtype(name: str) -> int:
    """ONNX's number of a dtype."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(name)))
