"""Pointwise convolutions as products for Strassen's algorithm: pixels of images in blocks of channels are the rows of A."""

from __future__ import annotations

from anycann.codegen.kernels.arithmetic_rate import is_halved
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.matmul_shape import MatmulShape, Strides
from anycann.codegen.kernels.strassen_tile import SAMPLE_ROWS, strassen_refusal
from anycann.target.target import Target
from anycann.te import dtypes


def image_product(shape: ConvolutionShape, lanes: int) -> MatmulShape:
    """The product of pixels and of weights in panels. Its strides are those within a block of channels (`strassen_rows.py` knows all)."""
    pixels, a, b = shape.out_pixels, Strides((shape.out_pixels * lanes,), lanes, 1), Strides((0,), shape.out_channels, 1)
    return MatmulShape((shape.batch,), pixels, shape.out_channels, shape.in_channels, a, b, packed=True)


def image_refusal(shape: ConvolutionShape, target: Target) -> str | None:
    """Why the algorithm does not compute this convolution; None if it does."""
    if shape.dtype is not dtypes.float32:
        return f"the input is stored as {shape.dtype}"
    is_pointwise = shape.taps == 1 and set(shape.strides) == {1} and not any(shape.pads_begin) and shape.in_size == shape.out_size
    if not is_pointwise or shape.group != 1:
        return "it is no product of pixels and channels"
    if shape.in_channels % target.lanes or shape.batch * shape.out_pixels == 0:
        return f"{shape.in_channels} channels are no whole blocks, or there are no pixels"
    if shape.batch > 1 and shape.out_pixels < SAMPLE_ROWS:
        return f"{shape.out_pixels} pixels are too few to be halved, and those of the next image do not follow them"
    return strassen_refusal(image_product(shape, target.lanes), target)


# Fewer do not repay the sums: 0.95 to 1.1 of the time (90 sizes of 25 to 400 pixels, 32 to 512 channels, one thread); else 0.87 to 0.98.
# In a network, where operands come from farther caches, layers of 20 MFLOP and less take 0.97 to 1.16, and with two threads without a
# common cache up to 1.19.
_LEAST_PIXELS, _LEAST_CHANNELS, _LEAST_FLOPS = 36, 128, 24_000_000


def image_gains(shape: ConvolutionShape, target: Target) -> bool:
    """True where it takes less time: measured on a Zen 4 with AVX-512, others keep the eight products."""
    channels = min(shape.in_channels, shape.out_channels)
    many = shape.out_pixels >= _LEAST_PIXELS and channels >= _LEAST_CHANNELS and shape.flops >= _LEAST_FLOPS * shape.batch
    return is_halved(target) and many and image_refusal(shape, target) is None
