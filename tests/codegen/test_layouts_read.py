"""Every kernel generator handed every layout: the result is right, or an error says which operand came in a layout it does not read."""

from __future__ import annotations

from collections.abc import Mapping
import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from anycann.codegen.contract import UNASKED, generate_contraction, refuse, wanted_layout
from anycann.codegen.contract_gradient import generate_gradient
from anycann.codegen.contract_layouts import layouts_read
from anycann.codegen.contract_recurrent import generate_recurrent
from anycann.codegen.contract_routine import generate_routine
from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.objects import emit_object
from anycann.codegen.repeats import Repeats
from anycann.codegen.tail import Generated
from anycann.runtime.loader import LoadedCode
from anycann.support.errors import InternalError
from anycann.target.target import Target, by_name
from anycann.te import contractions as operators
from anycann.te import dtypes, routines
from anycann.te import tensor as te
from anycann.te.contractions import Attention, Convolution, MatMul, Picture, Recurrent, Viewed, WeightGradient, operands
from anycann.te.dtypes import DType
from anycann.te.layout import NC1HWC0, ND, NHWC, window, window_rows
from anycann.te.routines import Routine, Running
from anycann.te.strided import Strided
from anycann.te.tensor import Contraction, Placeholder
from tests.codegen.kernels.jit import ENTRY, runnable
from tests.ops.naive_contractions import naive

Arrays = dict[str, np.ndarray]
TARGETS = [target for target in runnable() if target.lanes >= 8]
RNG = np.random.default_rng(3)


@dataclass(frozen=True)
class Problem:
    """A convolution of [N, C, *size] by [O, C / group, *kernel]; of a transposed one [C, O / group, *kernel]."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    out_size: tuple[int, ...]
    strides: int = 1
    pad: int = 0
    group: int = 1
    transposed: bool = False
    dtype: DType = dtypes.float32
    computed: bool = False

    def contraction(self) -> Contraction:
        rank, w_dtype = len(self.out_size), dtypes.int8 if self.dtype.nbytes == 1 else dtypes.float32
        x, w = te.placeholder("x", self.x, self.dtype), te.placeholder("w", self.w, w_dtype)
        each = [(value,) * rank for value in (self.strides, self.pad, 1)]
        operator = Convolution(x, w, *each, self.group, self.out_size, self.transposed, computed=self.computed)
        channels = self.w[1] * self.group if self.transposed else self.w[0]
        return te.contraction(operator, (self.x[0], channels, *self.out_size), dtypes.int32 if self.dtype.nbytes == 1 else dtypes.float32)


CONVOLUTIONS = {
    "dense": Problem((1, 19, 6, 7), (24, 19, 3, 3), (6, 7), pad=1),
    "Winograd": Problem((1, 32, 12, 12), (32, 32, 3, 3), (12, 12), pad=1),
    "planes": Problem((1, 3, 16, 32), (4, 3, 3, 3), (16, 32), pad=1),
    "one result": Problem((1, 64, 6, 7), (1, 64, 3, 3), (6, 7), pad=1),
    "depthwise": Problem((1, 32, 6, 7), (32, 1, 3, 3), (6, 7), pad=1, group=32),
    "depthwise, odd": Problem((1, 19, 6, 7), (19, 1, 3, 3), (6, 7), pad=1, group=19),
    "groups": Problem((1, 24, 6, 7), (48, 8, 3, 3), (6, 7), pad=1, group=3),
    "computed": Problem((1, 19, 6, 7), (24, 19, 3, 3), (6, 7), pad=1, computed=True),
    "transposed": Problem((1, 19, 4, 5), (19, 24, 2, 2), (8, 10), strides=2, transposed=True),
    "transposed, computed": Problem((1, 19, 6, 7), (19, 24, 3, 3), (6, 7), pad=1, transposed=True, computed=True),
    "bfloat16": Problem((1, 20, 6, 7), (24, 20, 3, 3), (6, 7), pad=1, dtype=dtypes.bfloat16),
    "bfloat16, transposed": Problem((1, 20, 4, 5), (20, 32, 2, 2), (8, 10), strides=2, transposed=True, dtype=dtypes.bfloat16),
    "bytes": Problem((1, 20, 6, 7), (24, 20, 3, 3), (6, 7), pad=1, dtype=dtypes.uint8),
    "bytes, Winograd": Problem((1, 64, 12, 12), (64, 64, 3, 3), (12, 12), pad=1, dtype=dtypes.uint8),
    "bytes, planes": Problem((1, 3, 8, 9), (24, 3, 3, 3), (8, 9), pad=1, dtype=dtypes.uint8),
    "bytes, one channel": Problem((1, 1, 8, 9), (24, 1, 3, 3), (8, 9), pad=1, dtype=dtypes.int8),
    "bytes, one pixel": Problem((1, 24, 1, 1), (20, 24, 1, 1), (1, 1), dtype=dtypes.int8),
    "bytes, depthwise": Problem((1, 32, 6, 7), (32, 1, 3, 3), (6, 7), pad=1, group=32, dtype=dtypes.uint8),
    "bytes, transposed": Problem((1, 20, 4, 5), (20, 32, 2, 2), (8, 10), strides=2, transposed=True, dtype=dtypes.uint8),
    "bytes, one channel, transposed": Problem((1, 1, 4, 5), (1, 32, 2, 2), (8, 10), strides=2, transposed=True, dtype=dtypes.uint8),
}


def numbers(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Whole numbers, so that sums are exact in every type."""
    low = 0 if dtype in (dtypes.uint8,) else -4
    return RNG.integers(low, 5, shape).astype(dtype.numpy)


def stored(array: np.ndarray, layout: str, lanes: int) -> np.ndarray:
    """An operand as it lies in memory, in numbers that no sum may see where it has none; a window keeps all rows of one image."""
    if layout == NHWC:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))
    if layout != NC1HWC0:
        return np.ascontiguousarray(array)
    blocks = np.full((array.shape[0], -(-array.shape[1] // lanes) * lanes, *array.shape[2:]), 99).astype(array.dtype)
    blocks[:, : array.shape[1]] = array
    return np.ascontiguousarray(np.moveaxis(blocks.reshape(array.shape[0], -1, lanes, *array.shape[2:]), 2, -1))


def run(kernel: Kernel, target: Target, memory: Mapping[str, np.ndarray]) -> None:
    addresses = (ctypes.c_void_p * len(kernel.arguments))(*(memory[name].ctypes.data for name in kernel.arguments))
    scratch = np.full(kernel.scratch_bytes + 128, 0xAA, np.uint8)
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    ENTRY(code.address(kernel.symbol))(addresses, 0, kernel.tasks, scratch.ctypes.data + -scratch.ctypes.data % 64)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy on a 64-byte boundary with room behind it, as the runtime keeps buffers."""
    raw = np.zeros(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 64
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def compute(generated: Generated, target: Target, arrays: Mapping[str, np.ndarray], layouts: Mapping[str, str], result: Contraction) -> Any:
    memory = {name: aligned(stored(array, layouts.get(name, ND), target.lanes)) for name, array in arrays.items()}
    memory |= {packed.name: aligned(packed.array) for packed in generated.packed}
    memory["y"] = aligned(np.full(result.shape, 77, result.dtype.numpy))
    if generated.before is not None and generated.workspace is not None:
        memory[generated.workspace.name] = aligned(np.zeros(generated.workspace.nbytes, np.uint8))
        run(generated.before, target, memory)
    run(generated.kernel, target, memory)
    return memory["y"]


def expected(contraction: Contraction, target: Target, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """By the definition as a nest of loops, row-major."""
    memory = {**arrays, "y": np.zeros(contraction.shape, contraction.dtype.numpy)}
    run(generate([Output("y", naive(contraction))], {}, target), target, memory)
    return memory["y"]


def layouts_of(shape: tuple[int, ...]) -> list[str]:
    """All that a tensor may be stored in."""
    return [ND] if len(shape) < 3 else [ND, NC1HWC0, NHWC, *([window(shape[2])] if len(shape) == 4 else [])]


def attempt(contraction: Contraction, constants: Arrays, layouts: Mapping[str, str], target: Target) -> Generated | None:
    """The kernel, or None if it is refused as it should be: with a sentence that names the operand and what is accepted."""
    results = [Output("y", te.compute(contraction.shape, lambda *index: contraction[index]))]
    try:
        return generate_contraction(results, layouts, target, constants.get, UNASKED, Repeats())
    except InternalError as error:
        said = str(error)
    assert any(f"was given {name} in {layout}; it reads" in said for name, layout in layouts.items())
    return None


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_right_or_refused_in_every_layout(name: str, target: Target) -> None:
    problem = CONVOLUTIONS[name]
    contraction = problem.contraction()
    arrays = {p.name: numbers(p.shape, p.dtype) for p in operands(contraction.operator) if isinstance(p, Placeholder)}
    constants = {} if problem.computed else {"w": arrays["w"]}
    want = expected(contraction, target, arrays)
    for layout in layouts_of(problem.x):
        is_window = window_rows(layout) is not None
        generated = attempt(contraction, constants, {"x": layout}, target)
        assert is_window or attempt(contraction, constants, {"x": wanted_layout(contraction, "x", layout, target)}, target)
        if generated is None:
            assert is_window or wanted_layout(contraction, "x", layout, target) != layout
            continue
        got = compute(generated, target, arrays, {"x": layout}, contraction)
        np.testing.assert_allclose(got, want, rtol=0, atol=0 if problem.dtype.nbytes == 1 else 1e-2, err_msg=f"{name} from {layout}")
    for layout in layouts_of(problem.w)[1:]:
        assert attempt(contraction, constants, {"x": wanted_layout(contraction, "x", ND, target), "w": layout}, target) is None


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("name", ["dense", "planes", "bytes", "bytes, planes"])
def test_what_is_done_with_the_sums_reads_any_layout(name: str, target: Target) -> None:
    problem = CONVOLUTIONS[name]
    contraction = problem.contraction()
    rest = te.placeholder("rest", contraction.shape, contraction.dtype)
    total = te.compute(contraction.shape, lambda *index: contraction[index] + rest[index])
    arrays = {"x": numbers(problem.x, problem.dtype), "w": numbers(problem.w, dtypes.int8 if problem.dtype.nbytes == 1 else dtypes.float32)}
    want = expected(contraction, target, arrays)
    arrays["rest"] = numbers(rest.shape, rest.dtype)
    for layout in (ND, NC1HWC0, NHWC):
        layouts = {"x": wanted_layout(contraction, "x", ND, target), "rest": layout}
        generated = generate_contraction([Output("y", total)], layouts, target, arrays.get, UNASKED, Repeats())
        got = compute(generated, target, {"x": arrays["x"], "rest": arrays["rest"]}, layouts, contraction)
        np.testing.assert_array_equal(got, want + arrays["rest"], err_msg=layout)


def rows(name: str, *shape: int) -> Placeholder:
    return te.placeholder(name, shape, dtypes.float32)


def attention() -> Attention:
    views = [Viewed(rows(name, 2, 3, 5, 8), Strided.contiguous((2, 3, 5, 8))) for name in ("q", "k", "v")]
    return Attention(*views, (), (), 1.0, (0, 1, 2, 3))


def recurrent() -> Recurrent:
    return Recurrent("RNN", (rows("x", 4, 2, 3), rows("w", 1, 8, 3), rows("r", 1, 8, 8), *[None] * 5), 8, 0)


FLAT = {
    MatMul: lambda: MatMul(rows("a", 2, 4, 3), rows("b", 2, 3, 8)),
    Attention: attention,
    Picture: lambda: Picture(te.placeholder("source", (2, 3, 4, 5), dtypes.uint8), te.placeholder("table", (2, 3, 4), dtypes.uint8)),
    Recurrent: recurrent,
    WeightGradient: lambda: WeightGradient(rows("x", 2, 8, 6, 6), rows("dy", 2, 8, 6, 6), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    Running: lambda: Running(0, rows("x", 4, 2, 3), 4, 2, 3, "add", False, False),
}


def generate_any(operator: object, layouts: Mapping[str, str], target: Target) -> object:
    """By the generator of the operator."""
    if isinstance(operator, WeightGradient):
        return generate_gradient("y", operator, layouts, target)
    if isinstance(operator, Running):
        return generate_routine({"y": operator}, layouts, target)
    if isinstance(operator, Recurrent):
        known = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 8), np.float32)}
        return generate_recurrent({"y": operator}, layouts, "gates", target, known.get, UNASKED)
    sizes = {MatMul: (2, 4, 8), Attention: (2, 3, 5, 8), Picture: (2, 3, 4, 5)}
    contraction = te.contraction(operator, sizes[type(operator)], dtypes.float32)
    outputs = [Output("y", te.compute(contraction.shape, lambda *index: contraction[index]))]
    return generate_contraction(outputs, layouts, target, lambda _: None, UNASKED, Repeats())


@pytest.mark.parametrize("kind", FLAT, ids=lambda kind: kind.__name__)
def test_other_kernels_refuse_every_layout_but_their_own(kind: type) -> None:
    """What they compute of row-major operands, and of a gradient in blocks, other tests compare."""
    target, operator = by_name("avx2"), FLAT[kind]()  # type: ignore[no-untyped-call]
    read = {p.name: layouts_read(operator, p, target, UNASKED) for p in operands(operator) if isinstance(p, Placeholder)}
    accepted = {name: next(iter(layouts)) for name, layouts in read.items()}
    generate_any(operator, accepted, target)
    for operand in (p for p in operands(operator) if isinstance(p, Placeholder)):
        for layout in {ND, NC1HWC0, NHWC, window(4)} - read[operand.name]:
            with pytest.raises(InternalError, match=f"the kernel of a {kind.__name__} was given {operand.name} in {layout}; it reads"):
                generate_any(operator, {**accepted, operand.name: layout}, target)


def test_every_operator_says_which_layouts_its_kernel_reads() -> None:
    declared = {*FLAT, Convolution, Viewed} - {Running}
    assert {each for each in vars(operators).values() if isinstance(each, type) and each.__module__ == operators.__name__} == declared
    every = [each for each in vars(routines).values() if isinstance(each, type) and issubclass(each, Routine)]
    assert Running in every
    with pytest.raises(InternalError, match="object does not say which layouts its kernel reads"):
        layouts_read(object(), rows("x", 2), by_name("avx2"), UNASKED)


def test_an_operand_of_a_type_that_no_kernel_reads_is_refused() -> None:
    a, b = (te.placeholder(name, (4, 4), dtypes.int64) for name in "ab")
    product = te.contraction(MatMul(a, b), (4, 4), dtypes.int64)
    assert refuse(product, lambda _: False) == "a matrix product of int64"
    outputs = [Output("y", te.compute(product.shape, lambda *index: product[index]))]
    with pytest.raises(InternalError, match="a kernel was asked for what none computes: a matrix product of int64"):
        generate_contraction(outputs, {}, by_name("avx2"), lambda _: None, UNASKED, Repeats())
