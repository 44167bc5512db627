"""What is written to a range of places, as exporters say it, has a known shape; its values are those of the scatter."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.om.plan import NativeStep
from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, told

SIZES = (3, 7, 5)


def written(axis: int, value: str = "", integer: str = "int64", update: str = "float[{}] v") -> onnx.ModelProto:
    """x with v in the places begin..end of an axis, as Paddle's set_value is exported."""
    along = [-1 if number == axis else 1 for number in range(3)]
    value = value or ", ".join("1" if number == axis else str(size) for number, size in enumerate(SIZES))
    return parse(
        f"""g (float[3,7,5] x, {update.format(value)}, {integer} begin, {integer} end) => (float[3,7,5] y) {{
            first = Reshape(begin, single) last = Reshape(end, single)
            cut = Slice(x, first, last, cut_axis, step) size = Shape(cut) u = Expand(v, size)
            b = Squeeze(first) e = Squeeze(last) r = Range(b, e, one) i = Reshape(r, along)
            times = ScatterElements(size, axis, single) t = Tile(i, times) y = ScatterElements<axis={axis}>(x, t, u)
        }}""",
        axis=np.array([axis]), cut_axis=np.array([axis], integer), single=np.array([1]), step=np.array([1], integer),
        one=np.array(1, integer), along=np.array(along),
    )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 3), (2, 2), (0, 0), (-2, -1), (3, 2), (-3, -3)])
@pytest.mark.parametrize("integer", ["int64", "int32"])
def test_the_places_of_the_range_are_written_and_no_other(axis: int, begin: int, end: int, integer: str) -> None:
    model = written(axis, integer=integer)
    size = [1 if number == axis else extent for number, extent in enumerate(SIZES)]
    feeds = {"x": floats(*SIZES), "v": floats(*size, seed=1), "begin": np.array(begin, integer), "end": np.array(end, integer)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("value", ["1, 1, 5", "5", "1", "3, 1, 1"])
def test_what_is_written_may_be_smaller(value: str) -> None:
    model = written(1, value)
    feeds = {"x": floats(*SIZES), "v": floats(*map(int, value.split(","))), "begin": np.array(2), "end": np.array(6)}
    assert all(isinstance(step, NativeStep) for step in compile_graph(model).program.steps)
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_the_last_place_may_be_written() -> None:
    feeds = {"x": floats(*SIZES), "v": floats(3, 1, 5, seed=1), "begin": np.array(6), "end": np.array(7)}
    assert_same(run(written(1), feeds), by_definition(written(1), feeds))


def test_values_that_differ_along_the_axis_are_scattered() -> None:
    model = written(1, "2, 5")
    feeds = {"x": floats(*SIZES), "v": floats(2, 5), "begin": np.array(4), "end": np.array(6)}
    assert "WriteRange skipped y: what is written differs along the axis" in told(model)
    assert_same(run(model, feeds), by_definition(model, feeds))
