"""Packed weights hold the weights themselves: what the packing says of its order reads them back, bit for bit."""

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np

from anycann.codegen.kernels.convolution_packing import pack_weights, weights_arrangement
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.matmul_packing import columns_arrangement, pack_columns

LANES = st.sampled_from([4, 8, 16])


def random(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    group=st.integers(1, 5),
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 40),
    kernel=st.integers(1, 3),
    lanes=LANES,
    blocked=st.booleans(),
)
def test_convolution_weights_are_read_back(group, inputs, outputs, kernel, lanes, blocked):
    pad = (kernel // 2, kernel // 2)
    shape = ConvolutionShape(1, group * inputs, group * outputs, group, (6, 6), (kernel, kernel), (1, 1), (1, 1), pad, (6, 6))
    weights = random((group * outputs, inputs, kernel, kernel))
    arrangement = weights_arrangement(shape, lanes, blocked)
    if arrangement is None:  # the lanes run over input channels
        assert group == 1
        return
    packed = pack_weights(weights, shape, lanes, blocked)
    np.testing.assert_array_equal(arrangement.restore(packed.reshape(-1)).reshape(weights.shape), weights)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.lists(st.integers(1, 3), max_size=2), k=st.integers(1, 20), n=st.integers(1, 70), vectors=st.integers(1, 4), lanes=LANES,
    transposed=st.booleans(),
)  # fmt: skip
def test_matrices_are_read_back(batch, k, n, vectors, lanes, transposed):
    matrix = random((*batch, n, k) if transposed else (*batch, k, n))
    packed = pack_columns(np.swapaxes(matrix, -1, -2) if transposed else matrix, vectors * lanes)
    arrangement = columns_arrangement(matrix.shape, vectors * lanes, transposed)
    np.testing.assert_array_equal(arrangement.restore(packed.reshape(-1)), matrix)
