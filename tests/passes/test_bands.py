"""Convolutions joined over bands of rows: which they are, and that nothing else changes."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from anycann.target.target import Target, by_name, host
from tests.passes.graphs import AVX512, compile_graph, floats, parse, run, tasks

SMALL = 1 << 17  # bytes of a second-level cache: what lies between the kernels below is more
TINY = 1 << 14  # far more
WEIGHTS = {"w1": floats(24, 8, 1, 1), "w2": floats(24, 1, 3, 3, seed=1), "b": floats(24, seed=3)}
HEAD = "demo (float[1, 8, 50, 48] x)"
WIDEN = "a = Conv(x, w1, b) r = Relu(a)"
FILTER = "d = Conv<group = 24, pads = [1, 1, 1, 1]>(r, w2)"


def joined(model: onnx.ModelProto, cache_bytes: int = SMALL, target: Target = AVX512) -> list[str]:
    """The operators of the kernels that run in bands, on a processor with such a second-level cache."""
    program = compile_graph(model, replace(target, l2_bytes=cache_bytes)).program
    return ["+".join(task.op_types) for task in tasks(program) if task.symbol.startswith("bands")]


def assert_nothing_changes(model: onnx.ModelProto) -> None:
    feeds, target = {"x": floats(1, 8, 50, 48, seed=4)}, replace(host(), l2_bytes=TINY if host().has_few_registers else SMALL)
    apart = run(model, feeds, target=target, switched_off=frozenset(["bands"]), num_threads=1)
    for threads in (1, 3):
        for got, wanted in zip(run(model, feeds, target=target, num_threads=threads), apart, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_widening_and_a_filter_for_each_channel_run_in_bands() -> None:
    model = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {{ {WIDEN} {FILTER} y = Relu(d) }}", **WEIGHTS)
    assert joined(model) == ["Conv+Relu+Conv+Relu"]
    assert_nothing_changes(model)


def test_a_chain_is_as_long_as_it_can_be_and_reads_what_was_there_before() -> None:
    text = f"{{ {WIDEN} {FILTER} e = Relu(d) n = Conv(e, w3) m = Relu(n) y = Add(m, x) }}"
    model = parse(f"{HEAD} => (float[1, 8, 50, 48] y) {text}", w3=floats(8, 24, 1, 1, seed=2), **WEIGHTS)
    assert joined(model) == ["Conv+Relu+Conv+Relu+Conv+Relu+Add"]
    assert_nothing_changes(model)


def test_what_others_read_too_is_kept() -> None:
    text = f"{{ {WIDEN} {FILTER} y = Relu(d) q = GlobalAveragePool(r) }}"
    model = parse(f"{HEAD} => (float[1, 24, 50, 48] y, float[1, 24, 1, 1] q) {text}", **WEIGHTS)
    assert joined(model) == ["Conv+Relu+Conv+Relu"]
    assert_nothing_changes(model)


@pytest.mark.parametrize(
    "text",
    [
        f"{{ {WIDEN} d = Conv<group = 24, pads = [1, 1, 1, 1]>(r, w2) y = Add(d, r) }}",  # the tail reads what the chain makes
        "{ a = Conv(x, w1, b) q = Softmax<axis = 2>(a) y = Conv<group = 24, pads = [1, 1, 1, 1]>(q, w2) }",  # another kernel between
    ],
)
def test_others_stay_apart(text: str) -> None:
    model = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {text}", **WEIGHTS)
    assert joined(model) == []
    assert_nothing_changes(model)


def test_what_stays_in_the_cache_is_not_joined() -> None:
    model = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {{ {WIDEN} {FILTER} y = Relu(d) }}", **WEIGHTS)
    assert joined(model, 1 << 22) == []


def test_products_that_take_longer_than_moving_what_lies_between_stay_apart() -> None:
    few = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {{ {WIDEN} {FILTER} y = Relu(d) }}", **WEIGHTS)
    assert joined(few, 1 << 18) == ["Conv+Relu+Conv+Relu"]
    text = "{ a = Conv<pads = [2, 2, 2, 2]>(x, w1) r = Relu(a) d = Conv<pads = [2, 0, 2, 0]>(r, w2) y = Relu(d) }"
    many = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {text}", w1=floats(24, 8, 5, 5), w2=floats(24, 24, 5, 1))
    assert joined(many, 1 << 18) == []


SHORT = "d = Conv<group = 24, pads = [1, 0, 1, 0]>(r, w2)"
FEW_TAPS = {**WEIGHTS, "w2": floats(24, 1, 3, 1, seed=1)}


def test_with_few_registers_only_what_takes_longer_than_arithmetic_is_joined() -> None:
    avx2 = by_name("avx2")
    nine = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {{ {WIDEN} {FILTER} y = Relu(d) }}", **WEIGHTS)
    assert joined(nine, 1 << 16, avx2) == []  # from the third-level cache
    assert joined(nine, TINY, avx2) == ["Conv+Relu+Conv+Relu"]  # from memory
    three = parse(f"{HEAD} => (float[1, 24, 50, 48] y) {{ {WIDEN} {SHORT} y = Relu(d) }}", **FEW_TAPS)
    assert joined(three, 1 << 16, avx2) == ["Conv+Relu+Conv+Relu"]
    assert joined(three, 1 << 17, avx2) == []  # little


def test_with_few_registers_a_chain_goes_on_where_it_would_not_begin() -> None:
    text = f"{{ {WIDEN} {SHORT} e = Relu(d) n = Conv(e, w3) y = Relu(n) }}"
    model = parse(f"{HEAD} => (float[1, 8, 50, 48] y) {text}", w3=floats(8, 24, 1, 1, seed=2), **FEW_TAPS)
    assert joined(model, 1 << 16, by_name("avx2")) == ["Conv+Relu+Conv+Relu+Conv+Relu"]
