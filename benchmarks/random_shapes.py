"""Models of one operator with sizes that nobody picked, for `benchmarks.tuning`: each family of kernels draws its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
import random

import numpy as np

from benchmarks.drawn import ELEMENTS, FLOPS, Drawn, by, channels, extent
from benchmarks.random_convolutions import CONVOLUTIONS


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
    rows, keys = (rng.choice((rng.randint(1, 8), rng.randint(1, 64), rng.randint(8, 512))) for _ in range(2))
    if not FLOPS[0] < 4 * heads * rows * keys * depth < FLOPS[1]:
        return None
    causal = rows == keys or (rows < keys and rng.random() < 0.3)
    shapes = tuple((1, count, heads * depth) for count in (rows, keys, keys))
    attributes = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": int(causal)}
    return Drawn(f"{heads} x {rows}x{keys}x{depth}{' causal' if causal else ''}", "Attention", shapes, attributes=attributes)


def matmul_of_bytes(rng: random.Random) -> Drawn | None:
    """A product of bytes with a constant matrix."""
    m, n, k = (rng.choice((rng.randint(1, 8), rng.randint(8, 300), 16 * rng.randint(1, 64))) for _ in range(3))
    return Drawn(f"{m}x{n}x{k} bytes", "MatMul", ((m, k),), ((k, n),), in_bytes=True) if FLOPS[0] < 2 * m * n * k < FLOPS[1] else None


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
    return Drawn(f"{op_type} {by(shape)} along {axis}", op_type, (shape,), attributes={"axis": axis})


def normalization(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """Layer, root mean square or instance normalisation."""
    op_type = rng.choice(("LayerNormalization", "RMSNormalization", "InstanceNormalization"))
    if op_type == "InstanceNormalization" and len(shape) > 2:
        return Drawn(f"{op_type} {by(shape)}", op_type, (shape,), ((shape[1],),) * 2)
    op_type = op_type if op_type != "InstanceNormalization" else "LayerNormalization"
    scales = 1 if op_type == "RMSNormalization" else 2
    return Drawn(f"{op_type} {by(shape)}", op_type, (shape,), (shape[-1:],) * scales, attributes={"axis": -1})


def reduction(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """A sum, mean or extreme over some axes."""
    axes = sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape) - 1)))
    op_type = rng.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"))
    return Drawn(f"{op_type} {by(shape)} over {axes}", op_type, (shape,), values=(np.array(axes, np.int64),))


def transposition(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """Axes in any other order."""
    order = list(range(len(shape)))
    while order == sorted(order):
        rng.shuffle(order)
    return Drawn(f"Transpose {by(shape)} by {order}", "Transpose", (shape,), attributes={"perm": order})


def gathering(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """Rows by their numbers, every other element, or a border of what lies within."""
    axis, op_type = rng.randrange(len(shape)), rng.choice(("Gather", "Slice", "Pad"))
    text = f"{op_type} {by(shape)} along {axis}"
    if op_type == "Gather":
        places = np.array([rng.randrange(shape[axis]) for _ in range(rng.randint(1, 2 * shape[axis]))])
        return Drawn(f"{text}, {len(places)} places", op_type, (shape,), values=(places,), attributes={"axis": axis})
    if op_type == "Slice":
        first, step = rng.randrange(max(1, shape[axis] // 2)), rng.choice((1, 2, 3))
        bounds = tuple(np.array([number]) for number in (first, shape[axis], axis, step))
        return Drawn(f"{text} from {first} by {step}", op_type, (shape,), values=bounds)
    mode, most = rng.choice(("constant", "edge", "reflect")), min(4, min(shape) - 1)
    widths = [rng.randint(0, most) for _ in range(2 * len(shape))]
    return Drawn(f"{op_type} {mode} {by(shape)} {widths}", op_type, (shape,), values=(np.array(widths),), attributes={"mode": mode})


def elementwise(rng: random.Random, shape: tuple[int, ...]) -> Drawn:
    """An operator of two tensors, the second perhaps broadcast; or a function."""
    if rng.random() < 0.4:
        op_type = rng.choice(("Tanh", "Sigmoid", "Erf", "Exp", "Gelu", "HardSwish", "Sqrt"))
        return Drawn(f"{op_type} {by(shape)}", op_type, (shape,))
    other = tuple(size if rng.random() < 0.6 else 1 for size in shape)
    op_type = rng.choice(("Add", "Mul", "Sub", "Max"))
    return Drawn(f"{op_type} {by(shape)} {by(other)}", op_type, (shape, other))


def _image(rng: random.Random) -> tuple[int, ...] | None:
    shape = (rng.choice((1, 1, 2)), channels(rng, 256), extent(rng), extent(rng))
    return shape if ELEMENTS[0] < prod(shape) < ELEMENTS[1] else None


def pooling(rng: random.Random) -> Drawn | None:
    """Maxima or means of windows, or of whole images."""
    shape, op_type = _image(rng), rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    if shape is None:
        return None
    if op_type == "GlobalAveragePool":
        return Drawn(f"{op_type} {by(shape)}", op_type, (shape,), stem=True)
    window, stride = rng.choice((2, 3, 5)), rng.choice((1, 2, 2))
    pad = rng.choice((0, window // 2))
    if min(shape[2:]) + 2 * pad < window:
        return None
    attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return Drawn(f"{op_type} {window}/{stride} {by(shape)} pad {pad}", op_type, (shape,), attributes=attributes, image=True, stem=True)


def resizing(rng: random.Random) -> Drawn | None:
    """An image of another size, by neighbours or interpolated."""
    shape, mode = _image(rng), rng.choice(("nearest", "linear"))
    if shape is None:
        return None
    size = tuple(max(1, int(n * rng.choice((0.5, 1.5, 2.0, rng.uniform(0.4, 2.5))))) for n in shape[2:])
    values = (None, None, np.array([*shape[:2], *size], np.int64))
    return Drawn(
        f"Resize {mode} {by(shape)} to {by(size)}", "Resize", (shape,), values=values, attributes={"mode": mode}, image=True, stem=True
    )


FAMILIES: Mapping[str, Callable[[random.Random], Drawn | None]] = {
    **{name: kind.draw for name, kind in CONVOLUTIONS.items()},
    "product": matmul,
    "product of bytes": matmul_of_bytes,
    "attention": attention,
    "softmax": _of_tensor(softmax),
    "normalization": _of_tensor(normalization),
    "reduction": _of_tensor(reduction),
    "transposition": _of_tensor(transposition),
    "gathering": _of_tensor(gathering),
    "elementwise": _of_tensor(elementwise),
    "pooling": pooling,
    "resize": resizing,
}


def draw(family: str, rng: random.Random) -> Drawn:
    """A model of a family."""
    while (drawn := FAMILIES[family](rng)) is None:
        continue
    return drawn
