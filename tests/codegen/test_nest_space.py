"""Every choice for a nest computes what the default computes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from anycann.codegen.kernel_cache import KernelCache, compile_kernels
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.nest_space import NestSpace
from anycann.codegen.recipe import Recipe
from anycann.codegen.space import Choices
from anycann.target.target import PROCESSORS, Target, by_name, host
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.expression import unary
from anycann.te.layout import NC1HWC0
from anycann.te.tensor import Tensor
from anycann.tuning.measuring import Job, Measurer
from anycann.tuning.operands import inputs_of, outputs_of
from anycann.tuning.study import Study
from anycann.tuning.task import task_of
from anycann.tuning.tuner import _generated, candidate_of


def softmax(shape: tuple[int, ...]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    most = te.reduce("max", shape[:-1], shape[-1:], lambda *i: x[i])
    total = te.reduce("sum", shape[:-1], shape[-1:], lambda *i: unary("exp", x[i] - most[i[:-1]]))
    return te.compute(shape, lambda *i: unary("exp", x[i] - most[i[:-1]]) / total[i[:-1]])


def column_sums(shape: tuple[int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    total = te.reduce("sum", shape[1:], shape[:1], lambda j, i: x[i, j])
    return te.compute(shape[1:], lambda j: total[j] * 0.5)


def added(shape: tuple[int, ...]) -> Tensor:
    x, row = te.placeholder("x", shape, dtypes.float32), te.placeholder("row", shape[-1:], dtypes.float32)
    return te.compute(shape, lambda *i: x[i] * row[i[-1]] + 1.0)


def turned(shape: tuple[int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    return te.compute(shape[::-1], lambda i, j: x[j, i])


def means(shape: tuple[int, ...]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    total = te.reduce("sum", shape[:2], shape[2:], lambda n, c, y, z: x[n, c, y, z])
    return te.compute(shape[:2], lambda n, c: total[n, c] / float(np.prod(shape[2:])))


def pooled(shape: tuple[int, int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    made = (shape[0], shape[1] // 2, shape[2] // 2)
    return te.reduce("max", made, (2, 2), lambda c, i, j, y, z: x[c, i * 2 + y, j * 2 + z])


def tall_sums(shape: tuple[int, int, int]) -> Tensor:
    x = te.placeholder("x", (shape[1], shape[0], shape[2]), dtypes.float32)
    return te.reduce("sum", shape[:1], shape[1:], lambda i, j, k: x[j, i, k])


CASES = {
    "softmax": (softmax((37, 83)), {}),
    "long rows": (softmax((3, 1030)), {}),
    "column sums": (column_sums((90, 75)), {}),
    "added": (added((5, 33, 51)), {}),
    "turned": (turned((70, 45)), {}),
    "blocked means": (means((2, 35, 9, 7)), {"x": NC1HWC0}),
    "large": (added((64, 40, 64)), {}),
    "pooled": (pooled((16, 48, 38)), {}),
    "rows of few": (tall_sums((37, 11, 4)), {}),
    "rows of three vectors": (tall_sums((9, 7, 43)), {}),
}


@pytest.mark.parametrize("target", [host(), by_name("avx2"), by_name("sse")], ids=lambda t: t.name)
@pytest.mark.parametrize("name", CASES)
def test_every_choice_computes_the_same(name: str, target: Target, tmp_path: Path) -> None:
    tensor, layouts = CASES[name]
    recipe = Recipe((Output("y", tensor),), layouts, target)
    task = task_of(recipe, lambda name: None, Choices())
    assert task is not None
    study = Study(task)
    keys = [study.default, *product(*(p.choices[:2] if p.name == "parts" else p.choices for p in study.parameters))]
    possible = [key for key in dict.fromkeys(keys) if study.estimate(key) is not None]
    generated = _generated(study, possible)
    assert list(generated) == possible
    assert len(possible) >= 3  # a transposition has one loop over the lanes, and the numbers of tasks
    unique = {g.kernel.symbol: g for g in generated.values()}
    code = compile_kernels({symbol: g.kernel.ir for symbol, g in unique.items()}, target, 1, cache=KernelCache(tmp_path / "kernels"))
    candidates = tuple(candidate_of(g, code) for g in unique.values())
    with Measurer() as measurer:
        job = Job(candidates, inputs_of(recipe, task.constants), outputs_of(recipe), target, 2, rounds=1, round_seconds=1e-5)
        assert [timing.problem for timing in measurer.measure(job)] == [""] * len(candidates)


def log_softmax(shape: tuple[int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    most = te.reduce("max", shape[:-1], shape[-1:], lambda *i: x[i])
    total = te.reduce("sum", shape[:-1], shape[-1:], lambda *i: unary("exp", x[i] - most[i[:-1]]))
    return te.compute(shape, lambda *i: x[i] - most[i[:-1]] - unary("log", total[i[:-1]]))


def row_sums(shape: tuple[int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    return te.reduce("sum", shape[:1], shape[1:], lambda i, j: x[i, j])


def gathered_back(shape: tuple[int, int, int]) -> Tensor:
    """Of parts side by side, as a dilated convolution has computed them, pixels in order."""
    lines, parts, columns = shape
    x = te.placeholder("x", (parts * parts, lines, columns), dtypes.float32)
    return te.compute((lines, parts, columns, parts), lambda line, i, column, j: x[i * parts + j, line, column])


def every_third(shape: tuple[int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    return te.compute((shape[0], (shape[1] - 1) // 3), lambda i, j: x[i, j * 3 + 1])


def layer_normalized(shape: tuple[int, int]) -> Tensor:
    x = te.placeholder("x", shape, dtypes.float32)
    row_sum = te.reduce("sum", shape[:1], shape[1:], lambda i, j: x[i, j])
    mean = te.compute(shape[:1], lambda i: row_sum[i] * (1.0 / shape[1]))
    spread = te.reduce("sum", shape[:1], shape[1:], lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - mean[i]))
    return te.compute(shape, lambda i, j: (x[i, j] - mean[i]) / unary("sqrt", spread[i] * (1.0 / shape[1]) + 1e-5))


@pytest.mark.parametrize(
    ("tensor", "vector"),
    [
        (row_sums((873, 4)), 0),
        (row_sums((873, 8)), -1),  # 0.4 of the time over rows: AVX2 gathers a lane in more than a cycle
        (row_sums((1126, 9)), -1),
        (row_sums((900, 6)), -1),
        (softmax((3145, 9)), -1),  # 0.6
        (softmax((20000, 4)), 0),
        (log_softmax((4221, 5)), 0),  # 0.5 of the time along rows: the logarithm of one number takes as long as that of eight
        (log_softmax((4221, 12)), -1),
    ],
)
def test_avx2_gathers_only_the_shortest_rows(tensor: Tensor, vector: int) -> None:
    task = task_of(Recipe((Output("y", tensor),), {}, by_name("avx2")), lambda name: None, Choices())
    assert task is not None
    assert task.default["vector"] == vector


@pytest.mark.parametrize(
    ("tensor", "zen", "xeon"),
    [
        (row_sums((4000, 5)), 0, 0),
        (row_sums((4000, 13)), -1, 0),
        (row_sums((4000, 16)), -1, -1),  # 0.31 and 0.6 of the time over rows
        (softmax((4000, 3)), 0, 0),
        (softmax((4000, 8)), -1, 0),  # 0.57 and 1.1 of the time over rows
        (softmax((4000, 12)), -1, -1),  # 0.5 and 0.75
        (log_softmax((4000, 9)), 0, 0),  # 0.68 of the time over rows
        (log_softmax((4000, 16)), -1, 0),
        (softmax((4000, 37)), -1, -1),
    ],
)
def test_processors_that_gather_slowly_read_rows_in_order(tensor: Tensor, zen: int, xeon: int) -> None:
    for target, vector in ((PROCESSORS["znver4"], zen), (by_name("avx512"), xeon)):
        task = task_of(Recipe((Output("y", tensor),), {}, target), lambda name: None, Choices())
        assert task is not None
        assert task.default["vector"] == vector


@pytest.mark.parametrize(
    ("tensor", "vector"),
    [
        (layer_normalized((2000, 6)), 0),  # 0.8 of the time along rows: all stages read a row that is written out once
        (layer_normalized((2000, 14)), -1),
        (tall_sums((1156, 11, 4)), 0),  # 0.56 of the time of rows of four, each with a mask
        (gathered_back((8820, 4, 3)), 0),  # 0.32 of the time of 3 columns, whose every fourth element is scattered
        (every_third((401, 7)), 1),  # 0.38 of the time of 16 rows at once, which are scattered
    ],
)
def test_a_zen_takes_the_faster_loop(tensor: Tensor, vector: int) -> None:
    task = task_of(Recipe((Output("y", tensor),), {}, PROCESSORS["znver4"]), lambda name: None, Choices())
    assert task is not None
    assert task.default["vector"] == vector


@pytest.mark.parametrize("target", [by_name("avx2"), by_name("avx512"), PROCESSORS["znver4"]], ids=lambda target: target.cpu)
def test_a_mean_of_doubled_pixels_reads_them_along_rows(target: Target) -> None:
    """0.09 of the time of lanes over the rows, which have to be gathered."""
    x = te.placeholder("x", (40, 76, 32), dtypes.float32)
    total = te.reduce("sum", (40,), (38, 64), lambda c, i, j: x[c, i * 2, j // 2])
    kernel = generate([Output("y", total)], {}, target)
    assert "gather" not in kernel.ir
    assert f"insertelement <{target.lanes} x float>" not in kernel.ir


@pytest.mark.parametrize("target", [by_name("avx2"), by_name("avx512")], ids=lambda target: target.cpu)
@pytest.mark.parametrize("run", [2, 3, 4, 5, 7])
def test_short_runs_are_copied_as_they_lie(target: Target, run: int) -> None:
    """0.4 to 0.8 of the time of lanes over places that lie apart."""
    x = te.placeholder("x", (60, 70, run), dtypes.float32)
    turned = te.compute((70, 60, run), lambda j, i, k: x[i, j, k] * 2.0)
    task = task_of(Recipe((Output("y", turned),), {}, target), lambda name: None, Choices())
    assert task is not None
    assert task.default["vector"] == 2


@pytest.mark.parametrize("columns", [9, 12, 15, 17])
def test_runs_are_written_together_where_lanes_would_come_back_to_a_line_too_late(columns: int) -> None:
    """0.24 of the time of 16 rows at once, each of whose lines is behind the first-level cache when the next column is written."""
    x = te.placeholder("x", (900, columns), dtypes.float32)
    mirrored = te.compute((900, columns), lambda i, j: x[i, columns - 1 - j])
    task = task_of(Recipe((Output("y", mirrored),), {}, by_name("avx512")), lambda name: None, Choices())
    assert task is not None
    assert task.default["vector"] == 1


def test_numbers_that_repeat_in_pairs_are_read_into_whole_vectors() -> None:
    x, bias = te.placeholder("x", (3000, 2), dtypes.float32), te.placeholder("b", (2,), dtypes.float32)
    total = te.compute((3000, 2), lambda i, j: x[i, j] + bias[j])
    task = task_of(Recipe((Output("y", total),), {}, by_name("avx512")), lambda name: None, Choices())
    assert task is not None
    assert task.default["vector"] == 0


@pytest.mark.parametrize("shape", [(1, 256, 112, 112), (1, 432, 24, 103), (8, 288, 3, 29)])
def test_every_second_pixel_of_planes_goes_into_blocks_of_channels_by_channels(shape: tuple[int, ...]) -> None:
    x = te.placeholder("x", shape, dtypes.float32)
    some = te.compute((*shape[:2], -(-shape[2] // 2), -(-shape[3] // 2)), lambda n, c, i, j: x[n, c, i * 2, j * 2])
    task = task_of(Recipe((Output("y", some, NC1HWC0),), {}, by_name("avx2")), lambda name: None, Choices())
    assert task is not None
    assert isinstance(task.space, NestSpace)
    assert task.space.problem.outer[task.default["vector"]] == 8  # with pixels over the lanes 1.8 times as long: AVX2 has no scatter


def test_a_bank_of_the_past_does_not_fit_a_nest_that_changed() -> None:
    first, second = (
        task_of(Recipe((Output("y", added(shape)),), {}, host()), lambda name: None, Choices()) for shape in ((8, 16, 32), (8, 16, 48))
    )
    assert first is not None
    assert second is not None
    assert first.space.signature() != second.space.signature()


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("tensor", "vector"),
    [
        (softmax((4000, 4)), 0),  # rows that would leave lanes empty
        (softmax((400, 512)), -1),
        (means((1, 57, 59, 60)), -1),  # its one store a row lies apart, but a row has 3540 loads
        (column_sums((90, 512)), 0),
        (added((300, 77)), 1),
        (pooled((16, 48, 38)), 1),  # neighbours share cache lines, rows don't: 0.3 of the time
    ],
)
def test_lanes_run_where_the_nest_takes_the_fewest_cycles(tensor: Tensor, vector: int, target: str) -> None:
    task = task_of(Recipe((Output("y", tensor),), {}, by_name(target)), lambda name: None, Choices())
    assert task is not None
    assert task.default["vector"] == vector
