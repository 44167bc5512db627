"""Forms that the reference computes wrongly or not at all; what is wanted is written out."""

from __future__ import annotations

from fractions import Fraction
import math

import numpy as np
from onnx import helper
import pytest

from anycann import InferenceSession
from anycann.graph.prepared import PreparedNode
from anycann.graph.registry import OPSET, NotLowered, Sample, library
from anycann.support.errors import ModelError
from anycann.target.target import host
from tests.ops.operator_runner import build_case, run
from tests.passes.graphs import parse


def assert_gives(op_type: str, sample: Sample, *wanted: np.ndarray) -> None:
    operator = library().find("", op_type)
    assert operator is not None
    case = build_case(operator, sample, host(), False, False, list(wanted))
    assert not run([case], host())


def test_negative_pads_cut() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    wanted = np.pad(x[1:, :3], ((0, 1), (2, 0)), constant_values=1.5)
    assert_gives("Pad", Sample((x, np.array([-1, 2, 1, -2]), np.array(1.5, np.float32)), constant=(1,)), wanted)


def test_a_one_hot_index_out_of_range_is_nowhere() -> None:
    values = np.array([-1, 1], np.float32)
    wanted = np.array([[-1, -1, 1], [-1, -1, -1], [-1, -1, -1]], np.float32)
    assert_gives("OneHot", Sample((np.array([-1, 3, -4]), np.array(3), values), constant=(1,)), wanted)


def test_a_slice_backwards_from_before_the_first_element_is_from_it() -> None:
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    lists = (np.array([-3, -9]), np.array([-100, -20]), np.array([0, 1]), np.array([-2, -1]))
    assert_gives("Slice", Sample((x, *lists), constant=(1, 2, 3, 4)), x[:1, :1])
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
    for data, wanted in ((x, x[:1, :1]), (x[:, :0], x[:1, :0])):
        np.testing.assert_array_equal(PreparedNode(node, OPSET)((data, *lists))[0], wanted)


@pytest.mark.parametrize("size", [1, 9])
def test_a_scale_that_does_not_fit_is_an_error_of_the_model(size: int) -> None:
    session = InferenceSession(parse("g (float[N,M] x, float[8] s) => (float[N,M] y) { y = LayerNormalization(x, s) }"))
    with pytest.raises(ModelError, match=r"\[8\] does not fit"):
        session.run(None, {"x": np.ones((3, size), np.float32), "s": np.ones(8, np.float32)})


@pytest.mark.parametrize(("attributes", "axes"), [("axis=1, opset=12", (1, 2)), ("axis=0, opset=11", (0, 1, 2)), ("opset=12", (2,))])
def test_a_quantised_softmax_of_old_runs_over_all_axes_from_its_own(attributes: str, axes: tuple[int, ...]) -> None:
    text = f"""g (uint8[2,3,7] x) => (uint8[2,3,7] y) <float a = {{0.1}}, uint8 b = {{128}}, float c = {{0.00390625}}, uint8 d = {{0}}>
        {{ y = com.microsoft.QLinearSoftmax<{attributes}>(x, a, b, c, d) }}"""
    x = np.random.default_rng(1).integers(0, 256, (2, 3, 7)).astype(np.uint8)
    (y,) = InferenceSession(parse(text)).run(None, {"x": x})
    powers = np.exp((x - 128.0) * 0.1)
    wanted = powers / powers.sum(axis=axes, keepdims=True)
    assert np.abs(y - np.clip(wanted * 256, 0, 255)).max() < 0.51


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("shape", [(0, 3, 7), (2, 0, 7), (2, 3, 0)])
def test_a_quantised_softmax_of_nothing_is_nothing_on_the_host_too(opset: int, shape: tuple[int, ...]) -> None:
    node = helper.make_node("QLinearSoftmax", ["x", "a", "b", "c", "d"], ["y"], domain="com.microsoft", axis=1, opset=opset)
    (y,) = PreparedNode(node, OPSET)((np.zeros(shape, np.uint8), np.float32(0.1), np.uint8(128), np.float32(1 / 256), np.uint8(0)))
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.dtype) == (shape, np.uint8)


def test_no_index_gathers_nothing() -> None:
    assert_gives("Gather", Sample((np.ones((9, 5), np.float32), np.zeros(0, np.int64))), np.zeros((0, 5), np.float32))


@pytest.mark.parametrize("index", [99, -99, np.iinfo(np.int64).max, np.iinfo(np.int64).min])
def test_an_index_out_of_range_never_leaves_the_tensor(index: int) -> None:
    x = np.arange(3, dtype=np.float32)
    assert_gives("Gather", Sample((x, np.array([index]))), x[[2 if index > 0 else 0]])


def test_floats_beyond_an_integer_saturate_and_nan_is_zero() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2147483520, -2147483648, 1e30, -0.9, 0.9], np.float32)
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    assert_gives("Cast", Sample((x,), {"to": 6}), np.array([0, high, low, high, low, 2147483520, low, high, 0, 0], np.int32))
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert_gives(
        "Cast", Sample((x,), {"to": 7}), np.array([0, high, low, 3000000000, -3000000000, 2147483520, -(2**31), high, 0, 0], np.int64)
    )


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("wanted", ["int32", "int64", "bool", "float16"])
def test_the_host_casts_as_kernels_do(source: str, wanted: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 127.5, 128, -1.5, -128.5, 1e30, 0.5])
    with np.errstate(over="ignore"):
        x = x.astype(source)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(wanted))
    (got,) = PreparedNode(helper.make_node("Cast", ["x"], ["y"], to=to), OPSET)((x,))
    assert isinstance(got, np.ndarray)
    assert got.dtype == wanted
    assert_gives("Cast", Sample((x,), {"to": to}), got)
    (like,) = PreparedNode(helper.make_node("CastLike", ["x", "like"], ["y"]), OPSET)((x, np.zeros(1, wanted)))
    np.testing.assert_array_equal(np.asarray(like), got)


def test_quantising_saturates_and_rounds_halves_to_even() -> None:
    x = np.array([-1e9, 1e9, 0.5, 1.5, 2.5, -0.5, np.inf, -np.inf], np.float32)
    assert_gives(
        "QuantizeLinear", Sample((x, np.array(1, np.float32), np.array(3, np.uint8))), np.array([0, 255, 3, 5, 5, 3, 255, 0], np.uint8)
    )


def test_a_row_of_minus_infinity_sums_to_minus_infinity_in_logarithms() -> None:
    x = np.array([[-np.inf, -np.inf], [1000, 1000]], np.float32)
    wanted = np.array([[-np.inf], [1000 + np.log(2)]], np.float32)
    assert_gives("ReduceLogSumExp", Sample((x, np.array([1])), constant=(1,)), wanted)


def test_a_long_running_sum_is_added_up_in_order() -> None:
    x = np.random.default_rng(0).standard_normal(1 << 13).astype(np.float32)
    assert_gives("CumSum", Sample((x, np.array(0))), np.cumsum(x))


@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1}])
@pytest.mark.parametrize("columns", [1024, 1023, 4096])
def test_running_sums_of_rows_that_crowd_the_cache_are_added_up_in_order(columns: int, attributes: dict[str, int]) -> None:
    """More columns at once than elsewhere."""
    x = np.random.default_rng().standard_normal((3, 9, columns)).astype(np.float32)
    flipped = x[:, ::-1] if attributes.get("reverse") else x
    sums = np.cumsum(flipped, 1, dtype=np.float32)
    sums = sums[:, ::-1] if attributes.get("reverse") else sums
    if attributes.get("exclusive"):
        sums = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], 1)
    assert_gives("CumSum", Sample((x, np.array(1)), attributes, constant=(1,)), sums)


def test_dropout_that_trains_is_left_to_the_host() -> None:
    with pytest.raises(NotLowered, match="training"):
        assert_gives("Dropout", Sample((np.ones(3, np.float32), np.array(0.5, np.float32), np.array(True)), constant=(2,)), np.zeros(0))


@pytest.mark.parametrize("index", [4, -5, np.iinfo(np.int64).max, np.iinfo(np.int64).min])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_an_update_for_no_place_goes_nowhere(index: int, reduction: str) -> None:
    x, wanted = np.zeros(4, np.float32), np.array([0, 7, 0, 0], np.float32)
    assert_gives("ScatterElements", Sample((x, np.array([index, 1]), np.array([5, 7], np.float32)), {"reduction": reduction}), wanted)
    assert_gives("ScatterND", Sample((x, np.array([[1], [index]]), np.array([7, 5], np.float32)), {"reduction": reduction}), wanted)


def test_what_is_no_number_is_the_greatest_and_both_zeros_are_one() -> None:
    x = np.array([0.0, -np.nan, -np.inf, -0.0, np.inf, 0.0], np.float32)
    places = np.array([1, 4, 0, 3, 5, 2])
    assert_gives("TopK", Sample((x, np.array([6])), constant=(1,), outputs=2), x[places], places)
    assert_gives(
        "TopK", Sample((x, np.array([6])), {"largest": 0}, constant=(1,), outputs=2), x[[2, 0, 3, 5, 4, 1]], np.array([2, 0, 3, 5, 4, 1])
    )


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(("size", "out"), [(224, 300), (300, 224), (49, 7), (10, 30), (7, 25)])
def test_resizing_by_sizes_takes_the_exact_neighbour_also_halfway(size: int, out: int, coordinates: str, nearest: str) -> None:
    """Coordinates are fractions; (37 + 1/2) 224 / 300 - 1/2 is 27 1/2, and a little more where the scale was rounded before."""
    rows = Fraction(size, out)
    places = {
        "half_pixel": [(o + Fraction(1, 2)) * rows - Fraction(1, 2) for o in range(out)],
        "asymmetric": [o * rows for o in range(out)],
        "align_corners": [Fraction(o * (size - 1), out - 1) for o in range(out)],
    }[coordinates]
    half = Fraction(1, 2)
    taken = {
        "round_prefer_floor": [math.ceil(place - half) for place in places],
        "round_prefer_ceil": [math.floor(place + half) for place in places],
        "floor": [math.floor(place) for place in places],
        "ceil": [math.ceil(place) for place in places],
    }[nearest]
    x = np.arange(size, dtype=np.float32)
    attributes = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
    assert_gives("Resize", Sample((x, None, None, np.array([out])), attributes, constant=(3,)), x[np.clip(taken, 0, size - 1)])


@pytest.mark.parametrize(
    ("stride", "out", "mode", "begin"), [(1, 3, "NOTSET", 2), (2, 4, "NOTSET", 4), (2, 4, "SAME_UPPER", 3), (3, 1, "NOTSET", 7)]
)
def test_a_transposed_convolution_may_give_less_than_its_image(stride: int, out: int, mode: str, begin: int) -> None:
    rng = np.random.default_rng(stride)
    x, w = rng.standard_normal((2, 5, 5)).astype(np.float32), rng.standard_normal((5, 19, 3)).astype(np.float32)
    whole = np.zeros((2, 19, 4 * stride + 3), np.float32)
    for place, tap in np.ndindex(5, 3):
        whole[:, :, place * stride + tap] += x[:, :, place] @ w[:, :, tap]
    text = f"""g (float[2,5,5] x) => (float[N,M,L] y) {{
        y = ConvTranspose<strides=[{stride}], output_shape=[{out}], auto_pad="{mode}">(x, w)
    }}"""
    (y,) = InferenceSession(parse(text, w=w)).run(None, {"x": x})
    np.testing.assert_allclose(y, whole[:, :, begin : begin + out], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("given", [0, 1, 2, 3])
def test_limits_of_suppression_may_be_numbers_and_left_out(given: int, rank: int) -> None:
    # three boxes of width 2: the second overlaps the first by a third, the third touches none
    boxes = np.array([[[0, 0, 2, 2], [0, 1, 2, 3], [8, 8, 10, 10]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.2]]], np.float32)
    limits = {"count": np.array(3), "overlap": np.array(0.5, np.float32), "least": np.array(0.5, np.float32)}
    feeds = {name: limit.reshape((1,) * rank) for name, limit in list(limits.items())[:given]}
    size = "[1]" if rank else ""
    inputs = "".join(f", {'int64' if name == 'count' else 'float'}{size} {name}" for name in feeds)
    operands = "".join(f", {name}" for name in feeds)
    text = f"g (float[1,3,4] boxes, float[1,1,3] scores{inputs}) => (int64[M,3] y) {{ y = NonMaxSuppression(boxes, scores{operands}) }}"
    (y,) = InferenceSession(parse(text)).run(None, {"boxes": boxes, "scores": scores, **feeds})
    assert (y.dtype, y[:, 2].tolist()) == (np.int64, [[], [0, 2], [0, 1, 2], [0, 1]][given])


@pytest.mark.parametrize("number", [0.0, 2.0])
def test_a_number_has_no_places_but_is_listed_where_it_is_not_zero(number: float) -> None:
    (y,) = InferenceSession(parse("g (float x) => (int64[0,M] y) { y = NonZero(x) }")).run(None, {"x": np.array(number, np.float32)})
    assert (y.dtype, y.shape) == (np.int64, (0, int(number != 0)))
