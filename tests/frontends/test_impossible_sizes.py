"""Sizes and attributes that cannot be are refused with a sentence: ONNX's inference lets them pass, or divides by them and crashes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, convert_model
from anycann.session import InferenceSession
from anycann.support.errors import ModelError
from tests.passes.graphs import AVX512, floats, parse

IMAGE, WEIGHTS = "float[1,3,8,8] x", np.ones((4, 3, 3, 3), np.float32)
BYTES = np.ones((4, 3, 3, 3), np.uint8)
ONE, ZERO = np.float32(1), np.uint8(0)


@pytest.mark.parametrize(
    ("node", "constants", "said"),
    [
        ("Conv<strides=[0,0]>(x, w)", {"w": WEIGHTS}, r"y' \(Conv\): attribute 'strides' is \[0, 0\]; 1 or more is accepted"),
        ("Conv<dilations=[1,-1]>(x, w)", {"w": WEIGHTS}, r"'dilations' is \[1, -1\]; 1 or more"),
        ("Conv<group=0>(x, w)", {"w": WEIGHTS}, "'group' is 0; 1 or more"),
        ("ConvTranspose<group=0>(x, w)", {"w": WEIGHTS}, "'group' is 0; 1 or more"),
        ("MaxPool<kernel_shape=[2,2], strides=[0,0]>(x)", {}, r"'strides' is \[0, 0\]"),
        ("AveragePool<kernel_shape=[0,0]>(x)", {}, r"'kernel_shape' is \[0, 0\]"),
        ("LpPool<kernel_shape=[2,2], strides=[0,0]>(x)", {}, r"'strides' is \[0, 0\]"),
        ("LRN<size=0>(x)", {}, "'size' is 0; 1 or more"),
        ("DepthToSpace<blocksize=0>(x)", {}, "'blocksize' is 0; 1 or more"),
        ("com.microsoft.MultiHeadAttention<num_heads=0>(x)", {}, "'num_heads' is 0; 1 or more"),
        ("com.microsoft.MatMulNBits<K=8, N=4, bits=4, block_size=0>(x, x, x)", {}, "'block_size' is 0; 1 or more"),
        ("QLinearConv<strides=[0,0]>(x, s, z, w, s, z, s, z)", {"w": BYTES, "s": ONE, "z": ZERO}, r"'strides' is \[0, 0\]"),
        ("Conv<kernel_shape=[5,5]>(x, w)", {"w": WEIGHTS}, r"\(Conv\): kernel_shape is \[5, 5\]; its weights have \[3, 3\]"),
        ("Conv(x, w, b)", {"w": WEIGHTS, "b": np.ones(7, np.float32)}, r"the bias has the shape \[7\]; \[4\] is accepted"),
        ("Conv(x, w, b)", {"w": WEIGHTS, "b": np.ones(3, np.float32)}, r"the bias has the shape \[3\]; \[4\] is accepted"),
        (
            "ConvTranspose<output_shape=[0,3]>(x, w)",
            {"w": WEIGHTS[:3]},
            r"output_shape is \[0, 3\]; 2 sizes of 1 or more are accepted",
        ),
        ("Reshape(x, s)", {"s": np.array([5, 40])}, r"\[1, 3, 8, 8\] has 192 elements and \[5, 40\] has 200"),
        ("Tile(x, s)", {"s": np.array([1, 1, 1 << 40, 1 << 10])}, "its result 'y' would have the shape .*, more than memory holds"),
        ("QuantizeLinear(x, s, z)", {"s": np.ones(2, np.float32), "z": np.zeros(2, np.uint8)}, "2 scales for 3 elements along axis 1"),
        ("QuantizeLinear<axis=7>(x, s, z)", {"s": np.ones(2, np.float32), "z": np.zeros(2, np.uint8)}, "axis is 7; its operand has"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(node: str, constants: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        compiled(f"g ({IMAGE}) => (float[N,C,H,W] y) {{ y = {node} }}", **constants)


@pytest.mark.parametrize(("turn", "depth"), [("", 8), ("<transA=1>", 4)])
def test_a_product_of_unequal_depths_is_refused(turn: str, depth: int) -> None:
    """Nothing else would keep it from reading behind its operand."""
    with pytest.raises(ModelError, match=rf"\(Gemm\): \[4, 8\] by \[6, 5\]: {depth} elements are to be multiplied with 6"):
        compiled(f"g (float[4,8] x) => (float[N,M] y) {{ y = Gemm{turn}(x, w) }}", w=np.ones((6, 5), np.float32))


def test_columns_that_are_no_heads_are_refused() -> None:
    with pytest.raises(ModelError, match="8 columns are no 3 heads"):
        compiled("g (float[2,5,8] x) => (float[A,B,C] y) { y = com.microsoft.MultiHeadAttention<num_heads=3>(x, x, x) }")


STEPPING = """<ir_version: 10, opset_import: ["": 20, "own": 1]>
    m (float[1,3,8,8] x, float[4,3,3,3] w) => (float[N,C,H,W] y) {{ y = own.Stepping<every={0}>(x, w) }}
    <domain: "own", opset_import: ["": 20]> Stepping<every>(x, w) => (y) {{ y = Conv<strides: ints = @every>(x, w) }}"""
COUNTING = """<ir_version: 10, opset_import: ["": 20, "own": 1]>
    m (float[4] x) => (float[4] y) { y = own.Counting<num_heads=0, strides=[0, 0]>(x) }
    <domain: "own", opset_import: ["": 20]> Counting<num_heads, strides>(x) => (y) { y = Neg(x) }"""


def test_what_a_call_gives_to_its_function_is_held_where_it_counts() -> None:
    assert InferenceSession(onnx.parser.parse_model(STEPPING.format([2, 1])))
    with pytest.raises(ModelError, match=r"\(Conv\): attribute 'strides' is \[0, 0\]; 1 or more is accepted"):
        InferenceSession(onnx.parser.parse_model(STEPPING.format([0, 0])))


def test_a_function_of_the_model_may_mean_anything_by_its_attributes() -> None:
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(InferenceSession(onnx.parser.parse_model(COUNTING)).run(None, {"x": x})[0], -x)


@pytest.mark.parametrize("shape", [(1, 4, 5, 8), (1, 5, 32)], ids=["heads", "columns"])
def test_heads_that_the_tables_say_need_no_number(shape: tuple[int, ...]) -> None:
    """Exporters of language models write `num_heads = 0`, the attribute's default in com.microsoft."""
    angles = np.arange(20, dtype=np.float32).reshape(5, 4)
    feeds = {"x": floats(*shape), "p": np.arange(5)[None]}

    def turned(attributes: str) -> list[np.ndarray]:
        text = f"g (float{list(shape)} x, int64[1,5] p) => (float y) {{ y = com.microsoft.RotaryEmbedding<{attributes}>(x, p, c, s) }}"
        return InferenceSession(parse(text, c=np.cos(angles), s=np.sin(angles))).run(None, feeds)

    np.testing.assert_array_equal(turned("num_heads=0, interleaved=0"), turned("interleaved=0"))


def compiled(text: str, **constants: np.ndarray) -> None:
    """Loaded as a session loads it, and compiled."""
    convert_model(parse(text, **constants), CompileOptions(target=AVX512))
