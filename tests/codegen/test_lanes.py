"""Expressions at one point of the loops: what is known for all lanes is not written again for some of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.codegen.nest_kernel import Output, generate
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.layout import NC1HWC0, NHWC
from tests.codegen.kernels.jit import distinct_names


def test_what_clamps_choose_between_is_computed_once_where_channel_blocks_are_partial() -> None:
    source = te.placeholder("source", (1, 24, 5, 5), dtypes.uint8)

    def body(*index: x.Expr) -> x.Expr:
        value = x.cast(source[index], dtypes.float32)
        for _ in range(4):
            value = value / 3.0
            value = x.select(value > -7.0, value, -7.0)
            value = x.select(value < 7.0, value, 7.0)
        return value

    result = te.compute(source.shape, body)
    ir = generate([Output("result", result, NC1HWC0)], {"source": NHWC}, by_name("avx512")).ir
    assert ir.count("call <16 x float> @llvm.fma") == 4  # the divisions
    assert ir.count("call <16 x i8> @llvm.masked.load") == 1


def test_branches_of_a_choice_know_nothing_of_each_other() -> None:
    source = te.placeholder("source", (24,), dtypes.float32)
    other = te.placeholder("other", (20,), dtypes.float32)
    result = te.compute((24,), lambda i: x.select(i < 20, other[i], source[i]) + x.select(i < 12, other[i], source[i]))
    ir = generate([Output("result", result)], {}, by_name("avx512")).ir
    assert ir.count("call <16 x float> @llvm.masked.load") >= 2  # each under the condition of its own branch


def test_what_lies_behind_a_border_of_whole_images_is_not_looked_for() -> None:
    """Lanes that are taken out by a mask take long in pages that do not exist: without a condition on the address 100 times as long."""
    source = te.placeholder("source", (4, 60, 100), dtypes.float32)
    far, near = (
        te.compute(
            (4 + pad, 60, 100),
            lambda i, j, k, pad=pad: x.select(i >= pad, x.select(k >= 1, source[i - pad, j, k - 1], 0.0), 0.0),  # type: ignore[misc]
        )
        for pad in (2, 0)
    )
    for bordered, is_far in ((far, True), (near, False)):
        ir = generate([Output("bordered", bordered)], {}, by_name("avx512")).ir
        assert ("icmp ult i64" in ir) == is_far


@pytest.mark.parametrize("target", distinct_names("host", "avx512", "avx2"))
@pytest.mark.parametrize("pads", [[2, 0, 1, 1, 1, 0, 0, 2], [0, 3, 0, 0, 5, 0, 0, 1], [1, 1, 4, 17, 1, 1, 4, 17]])
def test_borders_of_whole_images_are_written_and_nothing_else_is(pads: list[int], target: str) -> None:
    text = f"g (float[4,20,9,53] x) => (float[] y) {{ pads = Constant<value_ints={pads}>() y = Pad(x, pads) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.random.default_rng().standard_normal((4, 20, 9, 53)).astype(np.float32)
    (y,) = InferenceSession(model, SessionOptions(target=by_name(target), poison=True)).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.pad(x, list(zip(pads[:4], pads[4:], strict=True))))
