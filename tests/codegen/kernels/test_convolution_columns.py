"""The cut of a row into tiles: every product once, nothing outside the input."""

from __future__ import annotations

from convolution_harness import shape_of
from hypothesis import given, settings
from hypothesis import strategies as st

from anycann.codegen.kernels.convolution_columns import segments, tile_count
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, axes


def _axis(size, out, kernel, stride, dilation, pad):
    return Axis(size, out, kernel, stride, dilation, pad, 1, 0, 1, (0,), (out,))


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 40), st.integers(1, 40), st.integers(0, 9), st.integers(1, 4), st.integers(1, 3), st.integers(-3, 12), st.integers(1, 16)
)
def test_tiles_cover_each_valid_product_exactly_once(size, out, kernel, stride, dilation, pad, width):
    axis = _axis(size, out, kernel, stride, dilation, pad)
    done = []
    reached = 0
    for segment in segments(axis, width):
        assert segment.first == reached
        reached = segment.stop
        for tile in range(segment.first, segment.stop):
            start = tile * width
            if segment.kind is None:
                pixels = range(start, min(start + width, out))
                done += [(p, tap) for p in pixels for tap in axis.taps(p)]
                continue
            assert start + segment.kind.pixels <= out
            for span in segment.kind.spans:
                taps, pixels = range(span.first_tap, span.stop_tap), range(span.first_pixel, span.stop_pixel)
                done += [(start + p, tap) for tap in taps for p in pixels]
    assert reached == tile_count(axis, width)
    valid = [(o, k) for o in range(out) for k in range(kernel) if 0 <= o * stride - pad + k * dilation < size]
    assert sorted(done) == sorted(valid)


def test_only_border_tiles_of_a_padded_row_have_code_of_their_own():
    axis = axes(shape_of(1, 1, (1, 100), (1, 3), pads=(0, 1)), merge=False)[-1]
    assert [(s.first, s.stop, len(s.kind.spans)) for s in segments(axis, 10)] == [(0, 1, 2), (1, 9, 1), (9, 10, 2)]


def test_wide_kernels_do_their_border_pixel_by_pixel():
    axis = axes(shape_of(1, 1, (1, 200), (1, 51), pads=(0, 25)), merge=False)[-1]
    assert [(s.first, s.stop, s.kind is None) for s in segments(axis, 10)] == [(0, 3, True), (3, 17, False), (17, 20, True)]


def test_a_pointwise_convolution_is_one_long_row():
    (axis,) = axes(shape_of(8, 8, (4, 5, 6), 1), merge=True)
    assert (axis.in_size, axis.out_size, axis.members, axis.member_sizes) == (120, 120, (0, 1, 2), (4, 5, 6))


def test_a_column_kernel_is_a_dilated_row_kernel():
    (axis,) = axes(shape_of(8, 8, (9, 7), (3, 1), pads=(1, 0)), merge=True)
    assert (axis.in_size, axis.kernel, axis.dilation, axis.pad) == (63, 3, 7, 7)


def test_a_trailing_dimension_of_one_disappears_even_with_strides():
    (axis,) = axes(shape_of(8, 8, (50, 1), (5, 1), strides=(3, 1)), merge=False)
    assert (axis.stride, axis.kernel, axis.out_size) == (3, 5, 16)


def test_taps_that_only_meet_padding_are_dropped():
    shape = ConvolutionShape(1, 1, 1, 1, (1,), (5,), (1,), (1,), (2,), (1,))
    (axis,) = axes(shape, merge=False)
    assert (axis.kernel, axis.tap_offset, axis.pad) == (1, 2, 0)


def test_taps_count_as_often_as_they_meet_the_input():
    depth, rows, _ = axes(shape_of(8, 8, (2, 9, 9), 3, pads=1), merge=False)
    assert (depth.mean_taps, rows.mean_taps) == (2, (7 * 3 + 2 * 2) / 9)
