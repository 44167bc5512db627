"""Graphs that TensorFlow itself makes and runs: `python tensorflow_cases.py FILE` with TensorFlow 2.15 writes them with their results.

test_tensorflow_itself.py runs this file by another interpreter; nothing else imports it.
"""

from __future__ import annotations

from collections.abc import Callable
import pickle
import sys

import numpy as np
import tensorflow as tf  # type: ignore[import-not-found]
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2  # type: ignore[import-not-found]

v1, nn, raw = tf.compat.v1, tf.compat.v1.nn, tf.raw_ops
rng = np.random.default_rng()
CASES: dict[str, tuple[bytes, list[np.ndarray], list[np.ndarray]]] = {}


def case(name: str, build: Callable[..., object], *operands: np.ndarray, shape: list[int | None] | None = None) -> None:
    """Make the graph of `build(*placeholders)`, run it, and keep both. shape: of the first placeholder, None for open sizes."""
    with tf.Graph().as_default() as graph:
        shapes = [shape if shape and not n else array.shape for n, array in enumerate(operands)]
        inputs = [v1.placeholder(array.dtype, sizes, name=f"x{n}") for n, (array, sizes) in enumerate(zip(operands, shapes, strict=True))]
        made = build(*inputs)
        results = [tf.identity(t, name=f"y{n}") for n, t in enumerate(made if isinstance(made, (list, tuple)) else [made])]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values = session.run(results, dict(zip(inputs, operands, strict=True)))
            names = [result.op.name for result in results]
            frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), names)
        CASES[name] = (frozen.SerializeToString(), list(operands), [np.asarray(value) for value in values])


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def conv(x: object, outputs: int = 8, size: int = 1, step: int = 1) -> object:
    return nn.conv2d(x, f(size, size, 6, outputs), [1, step, step, 1], "SAME")


def convolutions() -> None:
    x, open_ = f(2, 9, 11, 6), [None, None, None, 6]
    for shape in (None, open_):
        case(f"conv {shape}", lambda x: conv(x, size=3, step=2), x, shape=shape)
    case("dilated", lambda x: nn.conv2d(x, f(3, 3, 6, 8), [1, 1, 1, 1], "VALID", dilations=[1, 2, 2, 1]), x)
    case("explicit", lambda x: nn.conv2d(x, f(3, 3, 6, 8), [1, 1, 1, 1], [[0, 0], [1, 2], [2, 1], [0, 0]]), x)
    case("atrous", lambda x: nn.atrous_conv2d(x, f(3, 3, 6, 8), 2, "SAME"), x)
    case("to batch", lambda x: tf.space_to_batch(x, [2, 2], [[1, 0], [0, 1]]), x)
    case("to space", lambda x: tf.batch_to_space(x, [2, 2], [[1, 0], [0, 1]]), f(8, 3, 4, 5))
    case("depthwise", lambda x: nn.relu6(nn.depthwise_conv2d(x, f(3, 3, 6, 2), [1, 2, 2, 1], "SAME") + f(12)), x)
    for rows, columns, padding, size in ((18, 22, "SAME", 3), (17, 21, "SAME", 3), (18, 22, "VALID", 2)):
        case(
            f"transposed {rows} {padding}",
            lambda x, s=[2, rows, columns, 5], p=padding, k=size: nn.conv2d_transpose(x, f(k, k, 5, 6), s, [1, 2, 2, 1], p),
            x,
        )
    sizes = lambda x: tf.stack([tf.shape(x)[0], tf.shape(x)[1] * 2, tf.shape(x)[2] * 2, 5])  # noqa: E731
    case("transposed open", lambda x: nn.conv2d_transpose(x, f(4, 4, 5, 6), sizes(x), [1, 2, 2, 1], "SAME"), x, shape=open_)
    case("conv3d", lambda x: nn.conv3d(x, f(2, 3, 3, 4, 5), strides=[1, 1, 2, 2, 1], padding="SAME"), f(1, 4, 6, 7, 4))
    case("conv1d", lambda x: nn.conv1d(x, f(3, 6, 7), stride=2, padding="SAME"), f(2, 11, 6))


def pictures() -> None:
    x = f(2, 9, 11, 6)
    moments = {"mean": f(6), "variance": np.abs(f(6)) + 0.5}
    empty = {"mean": np.zeros(0, np.float32), "variance": np.zeros(0, np.float32)}
    for training, given in ((False, moments), (True, empty)):
        case(
            f"norm {training}",
            lambda x, g=given, t=training: raw.FusedBatchNormV3(x=x, scale=f(6), offset=f(6), epsilon=1e-3, is_training=t, **g)[0],
            x,
        )
    for padding in ("SAME", "VALID"):
        case(f"max {padding}", lambda x, p=padding: nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], p), x)
        case(f"average {padding}", lambda x, p=padding: nn.avg_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], p), x)
    case("lrn", lambda x: nn.lrn(x, 2, 1.0, 0.1, 0.75), x)
    case("attention of channels", lambda x: (lambda c: c * tf.sigmoid(tf.reduce_mean(c, [1, 2], keepdims=True)))(conv(x)), x)
    case("squeezed", lambda x: tf.squeeze(tf.reduce_mean(conv(x), [1, 2], keepdims=True), [1, 2]), x)
    case("turned", lambda x: [tf.transpose(conv(x), p) for p in ([0, 3, 1, 2], [0, 2, 1, 3], [3, 0, 1, 2])], x)
    case("reduced", lambda x: [tf.reduce_max(conv(x), 3), tf.reduce_sum(conv(x), 1), tf.nn.softmax(conv(x))], x)
    case(
        "padded",
        lambda x: [tf.pad(conv(x), [[0, 0], [1, 2], [3, 0], [0, 1]]), tf.pad(conv(x), [[0, 0], [1, 2], [3, 0], [0, 0]], "REFLECT")],
        x,
    )
    for name in ("bilinear", "nearest_neighbor"):
        resize = getattr(v1.image, f"resize_{name}")
        for mode in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
            case(f"{name} {mode}", lambda x, r=resize, m=mode: r(x, [20, 13], **m), x)
    case("resized", lambda x: v1.image.resize_bilinear(x, tf.shape(x)[1:3] * 2), x, shape=[None, None, None, 6])
    boxes = rng.random((5, 4)).astype(np.float32) * 1.4 - 0.2
    places = np.array([0, 1, 1, 0, 1], np.int32)
    for size in ([4, 7], [1, 3]):
        case(f"crops {size}", lambda x, b, i, s=size: tf.image.crop_and_resize(x, b, i, s, extrapolation_value=2.5), x, boxes, places)
    case("depth", lambda x: [nn.depth_to_space(x, 2), nn.space_to_depth(x, 2)], f(2, 4, 6, 12))


UNARY = "abs negative exp square floor ceil round sign sin cos tan sinh cosh tanh sigmoid erf erfc expm1 reciprocal"
POSITIVE = "log sqrt rsqrt log1p"
ACTIVATIONS = "relu relu6 elu selu softplus softsign leaky_relu softmax log_softmax"
BINARY = """add subtract multiply divide maximum minimum squared_difference floordiv floormod divide_no_nan multiply_no_nan xdivy less
less_equal greater greater_equal equal not_equal"""


def elements() -> None:
    a, b, positive = f(3, 4), f(3, 4), np.abs(f(3, 4)) + 0.5
    for name in UNARY.split():
        case(name, getattr(tf.math, name), a * 2)
    for name in POSITIVE.split():
        case(name, getattr(tf.math, name), positive)
    for name in ACTIVATIONS.split():
        case(name, getattr(tf.nn, name), a * 4)
    for name in BINARY.split():
        case(name, getattr(tf.math, name), a, b[:1])
    numbers, divisors = (
        rng.integers(-20, 20, (3, 4)).astype(np.int32),
        (rng.integers(1, 7, (3, 4)) * rng.choice([-1, 1], (3, 4))).astype(np.int32),
    )
    for name, compute in (("//", tf.math.floordiv), ("%", tf.math.floormod), ("/", tf.truncatediv), ("rem", tf.truncatemod)):
        case(f"integers {name}", compute, numbers, divisors)
    for bits, narrow in ((8, False), (4, True)):
        case(f"quantised {bits}", lambda a, n=bits, r=narrow: tf.quantization.fake_quant_with_min_max_vars(a, -1.3, 1.9, n, r), a * 2)
    case("quantised alike", lambda a: tf.quantization.fake_quant_with_min_max_args(a, -1, 1), a)
    case("select", lambda a, b: [tf.where(a > b, a, b), v1.where(a[:, 0] > 0, a, b)], a, b)
    case("cast", lambda a: [tf.cast(a * 3, tf.int32), tf.cast(a, tf.float16), tf.cast(a, tf.bool)], a)


def moves() -> None:
    x, a = f(2, 9, 11, 6), f(3, 4)
    case("strided", lambda x: [x[:, 1:-1, ::2], x[..., 1], x[:, None, 2:5, -1], x[::-1, :, 3:1:-1], x[1, ..., tf.newaxis], x[-1, 2]], x)
    case("strided by sizes", lambda x: x[: tf.shape(x)[0] - 1, tf.shape(x)[1] - 2, 2:], x, shape=[None, None, 11, 6])
    case("slice", lambda x: [tf.slice(x, [0, 1, 2, 0], [2, -1, 5, 3]), tf.slice(x, tf.shape(x) * 0, [1, 2, 3, 4])], x)
    case("parts", lambda x: [*tf.split(conv(x), 4, -1), *tf.split(x, [2, -1, 1], 3), tf.concat([conv(x), conv(x, 3)], 3)], x)
    case("stack", lambda a: [tf.stack([a, a], 1), *tf.unstack(a, axis=1), tf.tile(a, [2, 3]), tf.reverse(a, [1])], a)
    case("gather", lambda a, i: [tf.gather(a, i), tf.gather(a, i, axis=1), tf.gather_nd(a, i)], a, np.array([[0, 2], [1, 1]], np.int32))
    case("scatter", lambda i, u: tf.scatter_nd(i, u, [5, 4]), np.array([[0], [2], [0]], np.int32), a)
    case("one hot", lambda i: [tf.one_hot(i, 5), tf.one_hot(i, 4, 2.0, -1.0, axis=0)], np.array([0, 3, 2], np.int32))
    case("places", lambda a: [tf.where(a > 0), tf.argmax(a, 1), tf.argmin(a, 0, tf.int32), *tf.nn.top_k(a, 3), tf.cumsum(a, 1)], a)
    case(
        "products",
        lambda a: [tf.matmul(a, a, transpose_b=True), tf.einsum("ij,kj->ik", a, a), tf.linalg.band_part(a @ tf.transpose(a), 1, 0)],
        a,
    )
    v1.disable_control_flow_v2()
    for side in (True, False):
        case(f"condition {side}", lambda a, c: v1.cond(c, lambda: a * 2, lambda: a[:2] - 1), a, np.array(side))
    keep = v1.placeholder_with_default
    case("dropout", lambda a: v1.cond(keep(False, []), lambda: nn.dropout(a, rate=0.5), lambda: a + 1), a)


def loops() -> None:
    v1.disable_control_flow_v2()
    case("counted", lambda x: tf.while_loop(lambda i, a: i < 9, lambda i, a: (i + 1, a * 1.5 + x), [tf.constant(0), x]), f(3, 4))
    case("until", lambda x: tf.while_loop(lambda a: tf.reduce_sum(tf.abs(a)) < 1000.0, lambda a: [a * 2.0], [x]), f(3, 4))
    inner = lambda i, a: tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * 1.1), [tf.constant(0), a])[1]  # noqa: E731
    case("nested", lambda x: tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, inner(i, a)), [tf.constant(0), x])[1], f(2, 3))
    case("map", lambda x: tf.map_fn(lambda row: tf.reduce_sum(row * row) + row, x), f(6, 4))
    case("scan", lambda x: tf.scan(lambda a, row: a * 0.5 + row, x), f(6, 4))
    rnn, x = v1.nn.rnn_cell, f(3, 7, 5)
    for shape in (None, [None, None, 5]):
        case(f"lstm {shape}", lambda x: v1.nn.dynamic_rnn(rnn.LSTMCell(8), x, dtype=tf.float32), x, shape=shape)
    lengths = np.array([2, 5, 4], np.int32)
    case("gru", lambda x, lengths: v1.nn.dynamic_rnn(rnn.GRUCell(8), x, lengths, dtype=tf.float32), x, lengths)
    for open_ in (False, True):
        for lowered in (False, True):
            _keras(f"keras {open_} {lowered}", x, open_, lowered)


def _keras(name: str, x: np.ndarray, open_: bool, lowered: bool) -> None:
    """A network of Keras, frozen with its loops as functions, or lowered to frames."""
    layers = tf.keras.layers
    network = tf.keras.Sequential([layers.Bidirectional(layers.GRU(6, return_sequences=True)), layers.LSTM(4)])
    expected = network(x).numpy()
    signature = tf.TensorSpec([None, None, 5] if open_ else x.shape, tf.float32, name="x0")
    function = tf.function(network).get_concrete_function(signature)
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=lowered)
    graph = frozen.graph.as_graph_def()
    node = graph.node.add(name="y0", op="Identity", input=[frozen.outputs[0].name])
    node.attr["T"].type = 1
    CASES[name] = (graph.SerializeToString(), [x], [expected])


if __name__ == "__main__":
    for fill in (convolutions, pictures, elements, moves, loops):
        fill()
    with open(sys.argv[1], "wb") as file:
        pickle.dump(CASES, file)
