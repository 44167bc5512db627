"""The spaces that tuning searches: what is in them computes the right thing, what comes from outside is checked."""

from __future__ import annotations

from dataclasses import replace
import json
import random
from typing import Any

import pytest

from anycann.codegen.kernels.arithmetic_rate import fma_rate
from anycann.codegen.kernels.attention_shape import AttentionShape
from anycann.codegen.kernels.attention_space import AttentionSpace
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionSpace, PlanesSpace, WinogradSpace
from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.matmul_shape import contiguous
from anycann.codegen.kernels.matmul_space import MatmulSpace
from anycann.codegen.kernels.planes_tile import planes_refusal
from anycann.codegen.kernels.strassen_images import image_refusal
from anycann.codegen.kernels.strassen_space import ImageAlgorithmSpace, ImageStrassenSpace, ProductAlgorithmSpace, StrassenSpace
from anycann.codegen.kernels.winograd_words_space import WordAlgorithmSpace, WordWinogradSpace
from anycann.codegen.space import Choices, Point, Space, usable
from anycann.target.target import NAMED, Target
from anycann.te import dtypes
from anycann.te.strided import Strided

TARGETS = [NAMED[name] for name in ("sse", "avx2", "avx512", "neon")]
TARGETS.append(replace(NAMED["avx512"], name="tiles", features=NAMED["avx512"].features + ",+amx-tile,+amx-int8,+amx-bf16,+avx512bf16"))


def random_convolution(rng: random.Random) -> ConvolutionShape:
    kernel, stride, size = rng.choice((1, 1, 3, 3, 5, 7)), rng.choice((1, 1, 2)), rng.randrange(1, 40)
    group = rng.choice((1, 1, 1, 2, 8))
    inputs, outputs = group * rng.randrange(1, 70), group * rng.randrange(1, 70)
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    dtype, rank = rng.choice((dtypes.float32, dtypes.float32, dtypes.float64, dtypes.int8)), rng.choice((2, 2, 2, 3))
    return ConvolutionShape(rng.choice((1, 2)), inputs, outputs, group, *((n,) * rank for n in (size, kernel, stride, 1, pad, out)), dtype)


def random_matmul(rng: random.Random) -> Any:
    m, n, k = (rng.choice((1, 2, 3, 7, 12, 64, 197, 1000)) for _ in range(3))
    packed = rng.random() < 0.5
    return contiguous(
        rng.choice(((), (3,))) if not packed else (),
        m,
        n,
        k,
        transpose_a=rng.random() < 0.3,
        transpose_b=not packed and rng.random() < 0.5,
        packed=packed,
    )


def random_attention(rng: random.Random) -> AttentionShape:
    rows, keys, depth, width = (rng.choice((1, 2, 7, 16, 33, 64, 197)) for _ in range(4))
    views = (Strided.contiguous((2, count, columns)) for count, columns in ((rows, depth), (keys, depth), (keys, width)))
    return AttentionShape((2,), rows, keys, depth, width, *views)


def random_space(rng: random.Random, target: Target) -> Space[Any]:
    if rng.random() < 0.2:
        return AttentionSpace(random_attention(rng), target)
    if rng.random() < 0.4:
        return MatmulSpace(random_matmul(rng), target)
    if rng.random() < 0.2:
        product = contiguous((), rng.choice((2, 65, 300)), rng.choice((384, 1536)), rng.choice((256, 768, 2048)), packed=True)
        return rng.choice([ProductAlgorithmSpace(product, target), StrassenSpace(product, target)])
    shape = random_convolution(rng)
    if rng.random() < 0.5:
        plane = as_plane(replace(shape, dtype=rng.choice((dtypes.uint8, dtypes.int8, dtypes.bfloat16))))
        words = WordAlgorithmSpace(plane, target)
        if len(words.parameters()[0].choices) > 1:
            return rng.choice([words, WordWinogradSpace(plane, target)])
        return DotSpace(plane, target)
    if planes_refusal(shape, target) is None and rng.random() < 0.2:
        return PlanesSpace(shape, target)
    if image_refusal(shape, target) is None:
        return rng.choice([ImageAlgorithmSpace(shape, target), ImageStrassenSpace(shape, target)])
    algorithm = AlgorithmSpace(shape, target)
    if len(algorithm.parameters()[0].choices) > 1 and rng.random() < 0.7:
        return WinogradSpace(shape, target)
    return rng.choice([algorithm, ConvolutionSpace(shape, target, rng.random() < 0.7)])


def random_point(space: Space[Any], rng: random.Random) -> Point:
    return {parameter.name: rng.choice(parameter.choices) for parameter in space.parameters()}


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_the_default_is_in_its_space(target: Target) -> None:
    rng = random.Random(7)
    for _ in range(60):
        space = random_space(rng, target)
        tile = space.default()
        assert space.refusal(tile) is None, (space, tile, space.refusal(tile))
        assert space.tile(space.point(tile)) == tile
        assert usable(space, space.point(tile)) == tile


def test_parameters_name_the_fields_of_the_tile_and_much_of_a_space_can_be_used() -> None:
    rng = random.Random(8)
    for _ in range(40):
        space = random_space(rng, rng.choice(TARGETS))
        points = [random_point(space, rng) for _ in range(200)]
        assert any(usable(space, point) is not None for point in points), space
        assert all(point.keys() == space.point(space.default()).keys() for point in points)


def test_a_signature_is_json_and_tells_problems_apart() -> None:
    shape = ConvolutionShape(1, 8, 8, 1, (9, 9), (3, 3), (1, 1), (1, 1), (1, 1), (9, 9))
    pointwise = ConvolutionShape(1, 256, 256, 1, (9, 9), (1, 1), (1, 1), (1, 1), (0, 0), (9, 9))
    target, attention = NAMED["avx2"], random_attention(random.Random(1))
    spaces: list[Space[Any]] = [
        ConvolutionSpace(shape, target),
        ConvolutionSpace(shape, target, False),
        ConvolutionSpace(replace(shape, batch=2), target),
        ConvolutionSpace(replace(shape, dtype=dtypes.int8), target),
        WinogradSpace(shape, target),
        MatmulSpace(contiguous((), 3, 4, 5), target),
        MatmulSpace(contiguous((), 3, 4, 5, transpose_b=True), target),
        ProductAlgorithmSpace(contiguous((), 3, 4, 5), target),
        StrassenSpace(contiguous((), 64, 768, 768, packed=True), target),
        ImageAlgorithmSpace(pointwise, target),
        ImageStrassenSpace(pointwise, target),
        AttentionSpace(attention, target),
        AttentionSpace(replace(attention, query=attention.query.transposed((0, 2, 1))), target),
    ]
    texts = [json.dumps(space.signature()) for space in spaces]
    assert len(set(texts)) == len(spaces)


class Says:
    """A bank that answers everything with one point."""

    def __init__(self, point: Any):
        self.point = point

    def find(self, space: Space[Any]) -> Any:
        return self.point


@pytest.mark.parametrize(
    "point",
    [
        {},
        {"columns": 3},
        {"columns": 10_000, "blocks": 1, "unroll": 1, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0},
        {"columns": 4, "blocks": 1, "unroll": 7, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0},
        {"columns": -4, "blocks": 1, "unroll": 1, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0},
        {"columns": "x", "blocks": 1, "unroll": 1, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0},
        {"columns": 4, "blocks": None, "unroll": 1, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0},
        {"columns": 4, "blocks": 1, "unroll": 1, "merge": 0, "blocks_inner": 0, "depth": 0, "images": 0, "more": 1},
        [1, 2],
    ],
    ids=str,
)
def test_what_a_bank_says_is_used_only_if_it_is_a_tile_of_the_space(point: Any) -> None:
    shape = ConvolutionShape(1, 64, 64, 1, (20, 20), (1, 1), (1, 1), (1, 1), (0, 0), (20, 20))
    space = ConvolutionSpace(shape, NAMED["avx512"])
    assert Choices(tuned=Says(point)).tile(space) == space.default()
    good = {"columns": 4, "blocks": 1, "unroll": 2, "merge": 0, "blocks_inner": 1, "depth": 0, "images": 0}
    assert Choices(tuned=Says(good)).tile(space) == space.tile(good) != space.default()


def test_winograd_is_never_chosen_where_it_is_forbidden_or_impossible() -> None:
    impossible = ConvolutionShape(1, 64, 64, 1, (20, 20), (9, 9), (1, 1), (1, 1), (4, 4), (20, 20))
    space = AlgorithmSpace(impossible, NAMED["avx512"])
    assert not Choices(tuned=Says({"winograd": 1})).tile(space).winograd


def test_processors_with_two_wide_units_get_tiles_with_fewer_loads() -> None:
    wide = NAMED["avx512"]
    halved = replace(wide, cpu="znver4")
    client, server = replace(wide, cpu="rocketlake"), replace(wide, cpu="rocketlake", features=wide.features + ",+avx512bf16")
    assert [fma_rate(target) for target in (wide, halved, client, server)] == [2.0, 1.0, 1.0, 2.0]
    shape = ConvolutionShape(1, 256, 64, 1, (56, 56), (1, 1), (1, 1), (1, 1), (0, 0), (56, 56))
    loads = {
        target.cpu: 1 / tile.blocks + 1 / tile.columns for target in (wide, halved) for tile in [ConvolutionSpace(shape, target).default()]
    }
    assert loads[wide.cpu] < loads["znver4"]


def test_products_of_computed_matrices_hand_whole_panels_to_a_task() -> None:
    space = MatmulSpace(contiguous((4,), 128, 1024, 512), NAMED["avx512"])
    tile = space.default()
    assert tile.copy
    assert tile.rows * tile.row_blocks >= 128
    assert not MatmulSpace(contiguous((12,), 128, 64, 128), NAMED["avx512"]).default().copy
