"""Lists that grow by a part at a time are joined from the list before, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.target.target import by_name
from tests.passes.graphs import compile_graph, floats, parse, run, tasks, told

OFF = frozenset({"GrowingConcat"})
HEAD = "g (float[1, 16, 6, 5] a, float[1, 16, 6, 5] b, float[1, 16, 6, 5] c) =>"
FEEDS = {name: floats(1, 16, 6, 5, seed=seed) for seed, name in enumerate("abc")}


def test_layers_that_read_all_before_them_copy_nothing() -> None:
    """Each convolution writes its part where the last list is, of which every other one is the beginning."""
    lines, parts = ["p0 = Conv(x, w0)"], ["p0"]
    weights = {"w0": floats(16, 8, 1, 1)}
    for number in range(1, 6):
        weights[f"w{number}"] = floats(16, 16 * number, 1, 1, seed=number) / 4
        lines += [f"l{number} = Concat<axis = 1>({', '.join(parts)})" if number > 1 else "l1 = Relu(p0)", f"r{number} = Relu(l{number})"]
        lines.append(f"p{number} = Conv(r{number}, w{number})")
        parts.append(f"p{number}")
    lines.append(f"whole = Concat<axis = 1>({', '.join(parts)}) y = Relu(whole)")
    model = parse(f"g (float[1, 8, 6, 5] x) => (float[1, 96, 6, 5] y) {{ {' '.join(lines)} }}", **weights)
    assert told(model) == tuple(f"GrowingConcat applied to {name}" for name in ("l3", "l4", "l5", "whole"))
    for target in (by_name("avx2"), by_name("avx512")):
        assert not [task for task in tasks(compile_graph(model, target).program) if "Concat" in task.op_types]
    feeds = {"x": floats(1, 8, 6, 5)}
    np.testing.assert_array_equal(run(model, feeds)[0], run(model, feeds, switched_off=OFF)[0])


@pytest.mark.parametrize(
    "text",
    [
        "(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) { x = Concat<axis = 1>(a, b) y = Concat<axis = 1>(a, b, c) }",  # both are results
        "(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) { x = Concat<axis = -3>(a, b) y = Concat<axis = 1>(a, b, c) }",
        "(float[1, 16, 6, 15] y, float[1, 16, 6, 10] x) { x = Concat<axis = 3>(a, b) y = Concat<axis = 3>(a, b, c) }",  # apart in memory
        "(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) { x = Concat<axis = 1>(a, a) y = Concat<axis = 1>(a, a, c) }",
        """(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x, float[1, 16, 6, 5] z) {
            p = Exp(a) l = Concat<axis = 1>(p, b) x = Relu(l) z = Neg(p) q = Sin(c) m = Concat<axis = 1>(p, b, q) y = Relu(m) }""",
        """(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) {
            p = Exp(a) q = Sin(b) l = Concat<axis = 1>(p, q) x = Relu(l) r = Neg(q) m = Concat<axis = 1>(p, q, r) y = Sqrt(m) }""",
    ],
)
def test_the_longer_list_is_that_of_the_shorter_and_the_rest(text: str) -> None:
    model = parse(f"{HEAD} {text}")
    assert len([line for line in told(model) if line.startswith("GrowingConcat applied")]) == 1
    for got, wanted in zip(run(model, FEEDS), run(model, FEEDS, switched_off=OFF), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "text",
    [
        "(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) { y = Concat<axis = 1>(a, b, c) x = Concat<axis = 1>(a, b) }",  # it comes later
        "(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) { x = Concat<axis = 1>(b, a) y = Concat<axis = 1>(a, b, c) }",
        "(float[1, 48, 6, 5] y, float[1, 32, 6, 5] x) { x = Concat<axis = 1>(b, c) y = Concat<axis = 1>(a, b, c) }",
        "(float[1, 48, 6, 5] y, float[1, 16, 12, 5] x) { x = Concat<axis = 2>(a, b) y = Concat<axis = 1>(a, b, c) }",
    ],
)
def test_other_lists_stay(text: str) -> None:
    assert told(parse(f"{HEAD} {text}")) == ()


@pytest.mark.parametrize("seed", range(8))
def test_random_lists_with_readers_of_every_part(seed: int) -> None:
    """Parts are read before and after they are joined, so that none may be overwritten as long as a list holds it."""
    numbers = np.random.default_rng(seed)
    axis, names, lines, results = int(numbers.integers(1, 4)), ["p0", "p1"], ["p0 = Exp(a) p1 = Sin(b)"], list[str]()
    for number in range(2, 7):
        source = names[numbers.integers(len(names))]
        lines.append(f"l{number} = Concat<axis = {axis}>({', '.join(names)}) r{number} = Relu(l{number})")
        lines.append(f"p{number} = {numbers.choice(['Neg', 'Sin', 'Relu', 'Tanh'])}({source})")
        results.append(f"r{number}")
        names.append(f"p{number}")
    results += [name for name in names if numbers.random() < 0.3]
    sizes = {name: [1, 16, 6, 5] for name in names}
    for number in range(2, 7):
        sizes[f"r{number}"] = [extent * (number if place == axis else 1) for place, extent in enumerate((1, 16, 6, 5))]
    outputs = ", ".join(f"float[{', '.join(map(str, sizes[name]))}] {name}" for name in results)
    model = parse(f"{HEAD} ({outputs}) {{ {' '.join(lines)} }}")
    assert len(told(model)) == 4
    for threads in (1, 2):
        for got, wanted in zip(run(model, FEEDS, num_threads=threads), run(model, FEEDS, switched_off=OFF), strict=True):
            np.testing.assert_array_equal(got, wanted)
