"""How far the default schedules are from tuned ones, on random shapes that nobody picked: the ratio default / tuned and its distribution.

python -m benchmarks.tuning --shapes 30 --seed 1 --threads 1 --json build/tuning.json
"""

from __future__ import annotations

from collections.abc import Sequence
import json
from pathlib import Path
import random
import tempfile

import click
import numpy as np

from anycann.codegen.kernel_cache import default_cache
from anycann.codegen.nest_kernel import Output
from anycann.codegen.recipe import Recipe
from anycann.codegen.space import Choices
from anycann.target.target import Target, host
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import Attention, Convolution, MatMul, Viewed
from anycann.te.expression import maximum
from anycann.te.layout import NC1HWC0
from anycann.te.nest import contractions
from anycann.te.strided import Strided
from anycann.te.tensor import Placeholder
from anycann.tuning.journal import Journal
from anycann.tuning.task import TuningTask, task_of
from anycann.tuning.tuner import Outcome, Tuner, TuningOptions

MOST_FLOPS = 1e9


def random_convolution(rng: random.Random) -> Convolution:
    """A convolution as networks have them, with sizes of no particular network."""
    while True:
        kernel, size = rng.choice((1, 1, 3, 3, 3, 5, 7)), rng.choice((7, 9, 13, 14, 20, 28, 35, 40, 56, 80, 112))
        inputs, outputs = (
            rng.choice((3, 16, 24, 40, 64, 72, 96, 128, 160, 256, 320, 480, 512)),
            rng.choice((16, 24, 40, 64, 96, 160, 256, 480)),
        )
        depthwise = rng.random() < 0.2 and kernel > 1 and inputs > 3
        stride = rng.choice((1, 1, 1, 2))
        outputs = inputs if depthwise else outputs
        group, pad = inputs if depthwise else 1, kernel // 2
        out = (size + 2 * pad - kernel) // stride + 1
        if 1e6 < 2 * outputs * out * out * inputs // group * kernel * kernel < MOST_FLOPS:
            x = te.placeholder("x", (1, inputs, size, size), dtypes.float32)
            w = te.placeholder("w", (outputs, inputs // group, kernel, kernel), dtypes.float32)
            return Convolution(x, w, (stride,) * 2, (pad,) * 2, (1, 1), group, (out,) * 2)


def convolution_recipe(rng: random.Random, target: Target) -> tuple[Recipe, str]:
    """A convolution with bias and Relu."""
    operator = random_convolution(rng)
    shape = (1, operator.w.shape[0], *operator.out_size)
    product, bias = te.contraction(operator, shape, dtypes.float32), te.placeholder("bias", (shape[1],), dtypes.float32)
    result = te.compute(shape, lambda n, c, y, x: maximum(product[n, c, y, x] + bias[c], 0.0))
    layouts = {"x": NC1HWC0} if operator.x.shape[1] > target.lanes // 2 else {}
    text = f"conv {operator.x.shape[1]}->{shape[1]} {operator.w.shape[2]}x{operator.w.shape[3]}/{operator.strides[0]}"
    text += f" at {operator.x.shape[2]}" + (" depthwise" if operator.group > 1 else "")
    return Recipe((Output("y", result, NC1HWC0),), layouts, target), text


def matmul_recipe(rng: random.Random, target: Target) -> tuple[Recipe, str]:
    """A product with constant or computed B, alone or batched."""
    while True:
        m, n, k = (rng.choice((1, 4, 12, 33, 64, 77, 128, 197, 256, 384, 512, 768, 1000, 1536, 2048)) for _ in range(3))
        batch = rng.choice(((), (), (), (6,), (12,)))
        if 1e6 < 2 * m * n * k * (batch or (1,))[0] < MOST_FLOPS:
            break
    constant = not batch and rng.random() < 0.7
    transposed = not constant and rng.random() < 0.5
    a = te.placeholder("a", (*batch, m, k), dtypes.float32)
    b = te.placeholder("w" if constant else "b", (*batch, n, k) if transposed else (*batch, k, n), dtypes.float32)
    product = te.contraction(MatMul(a, b, False, transposed), (*batch, m, n), dtypes.float32)
    result = te.compute((*batch, m, n), lambda *index: product[index])
    kind = "packed" if constant else "transposed" if transposed else "plain"
    return Recipe((Output("y", result),), {}, target), f"matmul {list(batch) or ''} {m}x{n}x{k} {kind}"


def attention_recipe(rng: random.Random, target: Target) -> tuple[Recipe, str]:
    """Attention of some heads, operands as projections make them, some of it causal."""
    while True:
        heads, depth = rng.choice((1, 4, 8, 12, 16)), rng.choice((16, 32, 40, 64, 80, 96, 128))
        rows, keys = (rng.choice((1, 16, 49, 64, 77, 128, 197, 256, 384, 512, 1024)) for _ in range(2))
        if 1e6 < 4 * heads * rows * keys * depth < MOST_FLOPS:
            break
    reach = keys - rows if rows <= keys and rng.random() < 0.4 else None

    def projected(name: str, count: int) -> Viewed:
        shape = (count, heads, depth)
        return Viewed(te.placeholder(name, shape, dtypes.float32), Strided.contiguous(shape).transposed((1, 0, 2)))

    operands = (projected("q", rows), projected("k", keys), projected("v", keys))
    weighed = te.contraction(Attention(*operands, (), (), depth**-0.5, (1, 0, 2), reach=reach), (rows, heads, depth), dtypes.float32)
    result = te.compute(weighed.shape, lambda *index: weighed[index])
    return Recipe((Output("y", result),), {}, target), f"attention {heads} x {rows}x{keys}x{depth}{'' if reach is None else ' causal'}"


KINDS = {"convolution": convolution_recipe, "matmul": matmul_recipe, "attention": attention_recipe}


def random_tasks(count: int, seed: int, target: Target, kinds: Sequence[str]) -> list[tuple[str, TuningTask]]:
    """As many of each kind."""
    rng, found = random.Random(seed), list[tuple[str, TuningTask]]()
    while len(found) < count:
        recipe, text = KINDS[kinds[len(found) % len(kinds)]](rng, target)
        weights = {p.name: p for p in _weights(recipe)}

        def value(name: str, weights: dict[str, Placeholder] = weights) -> np.ndarray | None:
            return np.zeros(weights[name].shape, np.float32) if name in weights else None

        task = task_of(recipe, value, Choices())
        if task is not None:
            found.append((text, task))
    return found


def _weights(recipe: Recipe) -> list[Placeholder]:
    operator = contractions([o.tensor for o in recipe.outputs])[0].operator
    operand = getattr(operator, "w" if isinstance(operator, Convolution) else "b", None)
    return [operand] if isinstance(operand, Placeholder) and operand.name == "w" else []


def report(named: Sequence[tuple[str, Outcome]]) -> None:
    """A line for each shape, the worst first, and the distribution."""
    for text, outcome in sorted(named, key=lambda item: -item[1].speedup):
        default = dict(outcome.task.default)
        chosen = {name: value for name, value in outcome.point.items() if default[name] != value}
        print(f"{1 / outcome.speedup:5.2f}  {outcome.before * 1e6:8.0f} us  {outcome.task.space.family:13s} {text}  {default} -> {chosen}")
    shares = np.array([1 / outcome.speedup for _, outcome in named])
    print(
        f"default reaches of tuned: least {shares.min():.2f}, lowest tenth {np.percentile(shares, 10):.2f}, median {np.median(shares):.2f}"
    )
    print(f"at least 0.85: {np.mean(shares >= 0.85):.0%}; at least 0.90: {np.mean(shares >= 0.9):.0%} of {len(shares)} shapes")


@click.command
@click.option("--shapes", default=30, show_default=True, help="How many shapes.")
@click.option("--seed", default=1, show_default=True)
@click.option("--threads", default=1, show_default=True, help="Threads that kernels are measured with.")
@click.option("--candidates", default=48, show_default=True, help="Most candidates for each shape.")
@click.option("--kinds", default="convolution,convolution,matmul,attention", show_default=True, help="What is drawn in turn, with commas.")
@click.option("--mode", default="RL,GA", show_default=True, help="The searches.")
@click.option("--journal", type=click.Path(path_type=Path), help="Write down every measurement here, or go on from it.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write what was found to this file.")
def main(
    shapes: int, seed: int, threads: int, candidates: int, kinds: str, mode: str, journal: Path | None, json_path: Path | None
) -> None:
    """Tune random shapes and say how much the default leaves."""
    named = random_tasks(shapes, seed, host(), kinds.split(","))
    texts = {id(task): text for text, task in named}
    with tempfile.TemporaryDirectory() as folder:
        options = TuningOptions(mode, candidates, threads=threads, seed=seed)
        tuner = Tuner([task for _, task in named], options, Journal(journal or Path(folder) / "journal"), default_cache())
        found = [(texts[id(outcome.task)], outcome) for outcome in tuner.run()]
    report(found)
    if json_path:
        facts = [{"shape": t, "default": dict(o.task.default), "tuned": dict(o.point), "share": 1 / o.speedup} for t, o in found]
        json_path.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
