"""Writes GraphDef files as TensorFlow does, for tests that must not need it."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.frontends.tensorflow.schema import message_class
from anycann.frontends.tensorflow.values import DTYPES

NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


class GraphDef:
    """`graph.node("Relu", "x", name="y")`; attributes by name, dtypes as numpy's, text as str."""

    def __init__(self) -> None:
        self.proto = message_class("GraphDef")()
        self._nodes = self.proto.node

    def placeholder(self, name: str, shape: tuple[int | None, ...] | None, dtype: object = np.float32) -> str:
        return self.node("Placeholder", name=name, dtype=np.dtype(dtype), shape=Shape(shape))  # type: ignore[call-overload]

    def constant(self, name: str, array: object, dtype: object = np.float32) -> str:
        return self.node("Const", name=name, value=np.asarray(array, dtype))  # type: ignore[call-overload]

    def node(self, op: str, *inputs: str, name: str, **attributes: object) -> str:
        node = self._nodes.add(name=name, op=op, input=inputs)
        for key, value in attributes.items():
            _set(node.attr.add(key=key).value, value)
        return name

    def function(self, name: str, parameters: tuple[str, ...], results: dict[str, str]) -> Function:
        """A function; results: names and what they are, `node:result:index` or a parameter."""
        proto = self.proto.library.function.add()
        proto.signature.name = name
        for parameter in parameters:
            proto.signature.input_arg.add(name=parameter)
        for result, value in results.items():
            proto.signature.output_arg.add(name=result)
            proto.ret.add(key=result, value=value)
        return Function(proto.node_def)

    @staticmethod
    def named(function: str) -> Named:
        return Named(function)

    @staticmethod
    def shape(sizes: tuple[int | None, ...]) -> Shape:
        return Shape(sizes)

    def content(self) -> bytes:
        return bytes(self.proto.SerializeToString())


class Function(GraphDef):
    """The nodes of a function."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes


class Named:
    """An attribute that is a function."""

    def __init__(self, name: str):
        self.name = name


class Shape:
    """An attribute that is a shape; None: an open size or rank."""

    def __init__(self, sizes: tuple[int | None, ...] | None):
        self.sizes = sizes


def _set(proto: Any, value: object) -> None:
    if isinstance(value, bool):
        proto.b = value
    elif isinstance(value, int):
        proto.i = value
    elif isinstance(value, float):
        proto.f = value
    elif isinstance(value, str):
        proto.s = value.encode()
    elif isinstance(value, np.dtype):
        proto.type = NUMBERS[value]
    elif isinstance(value, Named):
        proto.func.name = value.name
    elif isinstance(value, Shape):
        proto.shape.unknown_rank = value.sizes is None
        for size in value.sizes or ():
            proto.shape.dim.add(size=-1 if size is None else size)
    elif isinstance(value, list):
        proto.list.i.extend(value)
    else:
        assert isinstance(value, np.ndarray)
        proto.tensor.dtype = NUMBERS[value.dtype]
        for size in value.shape:
            proto.tensor.tensor_shape.dim.add(size=size)
        proto.tensor.tensor_content = value.tobytes()
