"""Models of one operator with sizes that nobody picked, for `benchmarks.tuning`: each family of kernels draws its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
import random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 24, 10
_STEM_CHANNELS = 3
OPERATOR, BEFORE, AFTER = "operator", "before", "after"
# Work that takes from some microseconds to some ten milliseconds: operations of products, elements of all else
FLOPS, ELEMENTS = (2e5, 2e9), (2e3, 4e6)


@dataclass(frozen=True)
class Drawn:
    """An operator between Relus, as networks have it: what is before it decides how its input lies in memory.

    inputs: shapes of what is computed; weights: of what is constant, behind the inputs; values: constants that matter, behind those.
    image: it is read in blocks of channels. stem: a convolution makes the first input, which leaves it in blocks of channels.
    """

    text: str
    op_type: str
    inputs: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[int, ...], ...] = ()
    values: tuple[np.ndarray | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    image: bool = False
    stem: bool = False

    def model(self) -> onnx.ModelProto:
        """Relu or a convolution, the operator, Relu of its result, and for an image what reads it in blocks of channels."""
        rng = np.random.default_rng(len(self.text))
        arrays = [rng.standard_normal(shape, np.float32) / 16 for shape in self.weights] + list(self.values)
        constants = {f"w{n}": array for n, array in enumerate(arrays) if array is not None}
        inputs, stem = list(self.inputs), helper.make_node("Relu", ["x0"], ["r0"], name=BEFORE)
        if self.stem:
            batch, channels, *size = inputs[0]
            inputs[0] = (batch, _STEM_CHANNELS, *size)
            constants["stem"] = rng.standard_normal((channels, _STEM_CHANNELS, *(1 for _ in size)), np.float32)
            stem = helper.make_node("Conv", ["x0", "stem"], ["r0"], name=BEFORE)
        names = [f"x{n}" for n in range(len(inputs))]
        operands = ["r0", *names[1:], *(f"w{n}" if array is not None else "" for n, array in enumerate(arrays))]
        nodes = [
            stem,
            helper.make_node(self.op_type, operands, ["t"], name=OPERATOR, **self.attributes),
            helper.make_node("Relu", ["t"], ["r"], name=AFTER),
            helper.make_node("GlobalAveragePool" if self.image else "Identity", ["r"], ["y"], name="end"),
        ]
        given = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in zip(names, inputs, strict=True)]
        weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, self.op_type, given, [onnx.ValueInfoProto(name="y")], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _channels(rng: random.Random, most: int = 512) -> int:
    """As networks have them, mostly multiples of 8, and a few that are none."""
    return rng.choice((8 * rng.randint(1, most // 8), 8 * rng.randint(1, most // 8), rng.randint(1, most)))


def _extent(rng: random.Random, most: int = 112) -> int:
    return rng.choice((rng.randint(5, 40), rng.randint(5, most)))


@dataclass(frozen=True)
class _Kind:
    """What a family of convolutions draws from. group: of the drawn channels."""

    kernels: tuple[int, ...]
    strides: tuple[int, ...] = (1,)
    dilations: tuple[int, ...] = (1,)
    batches: tuple[int, ...] = (1,)
    inputs: Callable[[random.Random], int] = _channels
    group: Callable[[random.Random, int], int] | None = None
    rank: int = 2

    def draw(self, rng: random.Random) -> Drawn | None:
        """One of them; None for sizes that do not fit each other or are too much work."""
        most = {1: 400, 2: 240, 3: 28}[self.rank]
        batch, stride, dilation = rng.choice(self.batches), rng.choice(self.strides), rng.choice(self.dilations)
        inputs, size = self.inputs(rng), tuple(_extent(rng, most) for _ in range(self.rank))
        group = self.group(rng, inputs) if self.group else 1
        outputs = inputs if self.group else _channels(rng)
        kernel = (rng.choice(self.kernels),) * self.rank
        pad = rng.choice((0, dilation * (kernel[0] // 2)))
        reach = dilation * (kernel[0] - 1) + 1
        if inputs % group or any(n + 2 * pad < reach for n in size):
            return None
        weights = (outputs, inputs // group, *kernel)
        pixels = prod((n + 2 * pad - reach) // stride + 1 for n in size)
        if not FLOPS[0] < 2 * batch * pixels * prod(weights) < FLOPS[1]:
            return None
        attributes = {"strides": [stride] * self.rank, "dilations": [dilation] * self.rank, "pads": [pad] * 2 * self.rank, "group": group}
        text = f"{inputs}->{outputs} {_by(kernel)}/{stride} at {_by((batch, *size))} pad {pad}"
        text += (f" group {group}" if group > 1 else "") + (f" dilation {dilation}" if dilation > 1 else "")
        return Drawn(text, "Conv", ((batch, inputs, *size),), (weights, (outputs,)), attributes=attributes, image=True)


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _some_groups(rng: random.Random, channels: int) -> int:
    return rng.choice([n for n in range(2, channels // 2 + 1) if channels % n == 0] or [1])


CONVOLUTIONS: Mapping[str, _Kind] = {
    "3x3 and wider": _Kind((3, 3, 3, 5, 7), (1, 1, 2)),
    "pointwise": _Kind((1,), (1, 1, 1, 2)),
    "few channels": _Kind((3, 5, 7, 11), (1, 2, 4), inputs=lambda rng: rng.randint(1, 6)),
    "depthwise": _Kind((3, 3, 5, 7), (1, 1, 2), group=lambda rng, channels: channels),
    "grouped": _Kind((1, 3, 3, 5), (1, 1, 2), group=_some_groups),
    "dilated": _Kind((3, 3, 5), (1,), (2, 3, 4, 6)),
    "1-d": _Kind((1, 3, 5, 9, 15), (1, 1, 2), (1, 1, 2), rank=1),
    "3-d": _Kind((1, 3, 3), (1, 2), rank=3),
    "several images": _Kind((1, 3, 3, 5), (1, 2), batches=(2, 3, 4, 8)),
}


def matmul(rng: random.Random) -> Drawn | None:
    """A product with a constant or a computed matrix, alone or batched."""
    m, n, k = (rng.choice((1, rng.randint(1, 40), rng.randint(8, 300), 16 * rng.randint(1, 128))) for _ in range(3))
    batch = rng.choice(((), (), (rng.randint(2, 16),)))
    if not FLOPS[0] < 2 * m * n * k * prod(batch) < FLOPS[1]:
        return None
    text = f"{list(batch) or ''} {m}x{n}x{k}"
    if not batch and rng.random() < 0.7:
        return Drawn(f"{text} constant", "MatMul", ((m, k),), ((k, n),))
    return Drawn(f"{text} computed", "MatMul", ((*batch, m, k), (*batch, k, n)))


def attention(rng: random.Random) -> Drawn | None:
    """Attention of some heads, operands as projections make them, some of it causal."""
    heads, depth = rng.randint(1, 16), 8 * rng.randint(1, 16)
    rows, keys = (rng.choice((rng.randint(1, 64), rng.randint(8, 512))) for _ in range(2))
    if not FLOPS[0] < 4 * heads * rows * keys * depth < FLOPS[1]:
        return None
    causal = rows == keys or (rows < keys and rng.random() < 0.3)
    shapes = tuple((1, count, heads * depth) for count in (rows, keys, keys))
    attributes = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": int(causal)}
    return Drawn(f"{heads} x {rows}x{keys}x{depth}{' causal' if causal else ''}", "Attention", shapes, attributes=attributes)


def _tensor(rng: random.Random) -> tuple[int, ...] | None:
    """A shape of two to four dimensions that is neither tiny nor huge."""
    rank = rng.randint(2, 4)
    shape = tuple(rng.choice((rng.randint(1, 12), rng.randint(5, 100), rng.randint(30, 1200))) for _ in range(rank))
    return shape if ELEMENTS[0] < prod(shape) < ELEMENTS[1] else None


def _of_tensor(draw: Callable[[random.Random, tuple[int, ...]], Drawn]) -> Callable[[random.Random], Drawn | None]:
    def drawn(rng: random.Random) -> Drawn | None:
        shape = _tensor(rng)
        return None if shape is None else draw(rng, shape)

    return drawn


def softmax(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """Softmax along any axis, or its logarithm."""
    axis, op_type = rng.choice((len(shape) - 1, rng.randrange(len(shape)))), rng.choice(("Softmax", "LogSoftmax"))
    return Drawn(f"{op_type} {_by(shape)} along {axis}", op_type, (shape,), attributes={"axis": axis})


def normalization(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """Layer, root mean square or instance normalisation."""
    op_type = rng.choice(("LayerNormalization", "RMSNormalization", "InstanceNormalization"))
    if op_type == "InstanceNormalization" and len(shape) > 2:
        return Drawn(f"{op_type} {_by(shape)}", op_type, (shape,), ((shape[1],),) * 2)
    op_type = op_type if op_type != "InstanceNormalization" else "LayerNormalization"
    scales = 1 if op_type == "RMSNormalization" else 2
    return Drawn(f"{op_type} {_by(shape)}", op_type, (shape,), (shape[-1:],) * scales, attributes={"axis": -1})


def reduction(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """A sum, mean or extreme over some axes."""
    axes = sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape) - 1)))
    op_type = rng.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"))
    return Drawn(f"{op_type} {_by(shape)} over {axes}", op_type, (shape,), values=(np.array(axes, np.int64),))


def transposition(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """Axes in any other order."""
    order = list(range(len(shape)))
    while order == sorted(order):
        rng.shuffle(order)
    return Drawn(f"Transpose {_by(shape)} by {order}", "Transpose", (shape,), attributes={"perm": order})


def elementwise(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """An operator of two tensors, the second perhaps broadcast; or a function."""
    if rng.random() < 0.4:
        op_type = rng.choice(("Tanh", "Sigmoid", "Erf", "Exp", "Gelu", "HardSwish", "Sqrt"))
        return Drawn(f"{op_type} {_by(shape)}", op_type, (shape,))
    other = tuple(size if rng.random() < 0.6 else 1 for size in shape)
    op_type = rng.choice(("Add", "Mul", "Sub", "Max"))
    return Drawn(f"{op_type} {_by(shape)} {_by(other)}", op_type, (shape, other))


def _image(rng: random.Random) -> tuple[int, ...] | None:
    shape = (rng.choice((1, 1, 2)), _channels(rng, 256), _extent(rng), _extent(rng))
    return shape if ELEMENTS[0] < prod(shape) < ELEMENTS[1] else None


def pooling(rng: random.Random) -> Drawn | None:
    """Maxima or means of windows, or of whole images."""
    shape, op_type = _image(rng), rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    if shape is None:
        return None
    if op_type == "GlobalAveragePool":
        return Drawn(f"{op_type} {_by(shape)}", op_type, (shape,), stem=True)
    window, stride = rng.choice((2, 3, 5)), rng.choice((1, 2, 2))
    pad = rng.choice((0, window // 2))
    attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return Drawn(f"{op_type} {window}/{stride} {_by(shape)} pad {pad}", op_type, (shape,), attributes=attributes, image=True, stem=True)


def resizing(rng: random.Random) -> Drawn | None:
    """An image of another size, by neighbours or interpolated."""
    shape, mode = _image(rng), rng.choice(("nearest", "linear"))
    if shape is None:
        return None
    size = tuple(max(1, int(n * rng.choice((0.5, 1.5, 2.0, rng.uniform(0.4, 2.5))))) for n in shape[2:])
    values = (None, None, np.array([*shape[:2], *size], np.int64))
    return Drawn(
        f"Resize {mode} {_by(shape)} to {_by(size)}", "Resize", (shape,), values=values, attributes={"mode": mode}, image=True, stem=True
    )


FAMILIES: Mapping[str, Callable[[random.Random], Drawn | None]] = {
    **{name: kind.draw for name, kind in CONVOLUTIONS.items()},
    "product": matmul,
    "attention": attention,
    "softmax": _of_tensor(softmax),
    "normalization": _of_tensor(normalization),
    "reduction": _of_tensor(reduction),
    "transposition": _of_tensor(transposition),
    "elementwise": _of_tensor(elementwise),
    "pooling": pooling,
    "resize": resizing,
}


def draw(family: str, rng: random.Random) -> Drawn:
    """A model of a family."""
    while (drawn := FAMILIES[family](rng)) is None:
        continue
    return drawn
