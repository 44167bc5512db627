"""What a convolution's tiles fetch for later ones: beside their products, a line or two at a time."""

from __future__ import annotations

import pytest

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.target.target import NAMED
from tests.tuning.cases import convolution_task_of


def test_a_row_of_few_tiles_fetches_later_weights_beside_its_products_and_not_at_once() -> None:
    """They are as many as its own weights: a run of them would keep the loads behind it waiting."""
    shape = ConvolutionShape(1, 96, 96, 1, (1, 8), (1, 3), (1, 1), (1, 1), (0, 1), (1, 8))
    task = convolution_task_of(shape, NAMED["avx2"])
    runs = [0]
    for line in task.generate(task.default).kernel.ir.splitlines():
        if "call void @llvm.prefetch" in line:
            runs[-1] += 1
        elif " load " in line or "@llvm.fma" in line:
            runs.append(0)
    assert task.default["unroll"] == 8
    assert sum(runs) > 30  # a line of weights has two vectors of a channel
    assert max(runs) <= 4


@pytest.mark.parametrize(("pixels", "fetched"), [(1, False), (4, False), (8, True)])
def test_a_tile_that_reads_its_weights_alone_fetches_only_for_pixels_that_hide_it(pixels: int, fetched: bool) -> None:
    """The products of few pixels are done before the next weights come: a fetch would only take their place."""
    shape = ConvolutionShape(1, 384, 320, 1, (1, pixels), (1, 3), (1, 1), (1, 1), (0, 1), (1, pixels))
    task = convolution_task_of(shape, NAMED["avx2"])
    assert ("call void @llvm.prefetch" in task.generate(task.default).kernel.ir) is fetched
