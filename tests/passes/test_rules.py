"""Fusion rules: the text of what they did, and the same numbers before and after."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from anycann.passes.rules import RULES, apply_rules
from anycann.passes.rules.batch_normalization import FoldBatchNormalization
from tests.passes.graphs import assert_same, by_definition, floats, parse, run, told

STATISTICS = {
    "scale": floats(6) + 2,
    "shift": floats(6, seed=1),
    "mean": floats(6, seed=2),
    "variance": floats(6, seed=3) ** 2 + 0.5,
}


def normalised(convolution: str, epsilon: str = "", **constants: np.ndarray) -> onnx.ModelProto:
    nodes = f"c = {convolution} y = BatchNormalization{epsilon}(c, scale, shift, mean, variance)"
    return parse(f"g (float[2,4,7,7] x) => (float[2,6,N,M] y) {{ {nodes} }}", **STATISTICS, **constants)


@pytest.mark.parametrize(
    ("convolution", "constants"),
    [
        ("Conv(x, w)", {"w": floats(6, 4, 3, 3)}),
        ("Conv(x, w, b)", {"w": floats(6, 4, 3, 3), "b": floats(6, seed=4)}),
        ("Conv<group=2, strides=[2,2], pads=[1,0,2,1]>(x, w)", {"w": floats(6, 2, 3, 3)}),
    ],
)
@pytest.mark.parametrize("epsilon", ["", "<epsilon=0.3>"])
def test_a_folded_batch_normalisation_changes_no_number(convolution: str, constants: dict[str, np.ndarray], epsilon: str) -> None:
    model = normalised(convolution, epsilon, **constants)
    assert "FoldBatchNormalization applied to y" in told(model)
    feeds = {"x": floats(2, 4, 7, 7, seed=5)}
    want = by_definition(model, feeds)
    assert_same(run(model, feeds), want)
    assert_same(run(model, feeds, switched_off=frozenset({"FoldBatchNormalization"})), want)


@pytest.mark.parametrize(
    ("text", "constants", "why"),
    [
        (
            "g (float[2,6,7,7] x) => (float[2,6,7,7] y) { y = BatchNormalization(x, scale, shift, mean, variance) }",
            {},
            "its input is not a convolution",
        ),
        (
            "g (float[2,4,7,7] x) => (float[2,6,5,5] y, float[2,6,5,5] c)"
            " { c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, variance) }",
            {"w": floats(6, 4, 3, 3)},
            "the convolution's result is also used elsewhere",
        ),
        (
            "g (float[2,4,7,7] x, float[6,4,3,3] w) => (float[2,6,5,5] y)"
            " { c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, variance) }",
            {},
            "its parameters are not all constants",
        ),
        (
            "g (float[2,4,7,7] x, float[6] b) => (float[2,6,5,5] y)"
            " { c = Conv(x, w, b) y = BatchNormalization(c, scale, shift, mean, variance) }",
            {"w": floats(6, 4, 3, 3)},
            "the bias of the convolution is computed at run time",
        ),
    ],
)
def test_a_rule_that_does_not_apply_says_why(text: str, constants: dict[str, np.ndarray], why: str) -> None:
    assert f"FoldBatchNormalization skipped y: {why}" in told(parse(text, **STATISTICS, **constants))


def test_every_rule_shows_before_and_after_and_has_a_name_of_its_own() -> None:
    assert all("->" in (type(rule).__doc__ or "") for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


ERF, TANH = "e = Erf(d) s = Add(one, e)", "e = Tanh(d) s = Add(e, one)"
NUMBERS = {
    "one": 1.0,
    "half": 0.5,
    "two": 2.0,
    "three": 3.0,
    "root": 2**0.5,
    "inverse": 0.5**0.5,
    "bend": 0.044715,
    "slope": (2 / np.pi) ** 0.5,
}
CUBIC = "c = Pow(x, three) b = Mul(c, bend) a = Add(x, b) d = Mul(a, slope)"


@pytest.mark.parametrize(
    ("text", "told_of"),
    [
        (f"d = Div(x, root) {ERF} m = Mul(x, s) y = Mul(m, half)", "applied"),
        (f"d = Mul(inverse, x) {ERF} m = Mul(half, x) y = Mul(s, m)", "applied"),
        (f"d = Mul(x, inverse) {ERF} m = Mul(s, half) y = Mul(m, x)", "applied"),
        (f"d = Mul(x, inverse) {ERF} m = Div(s, two) y = Mul(m, x)", "applied"),
        (f"{CUBIC} {TANH} m = Mul(x, half) y = Mul(m, s)", "applied"),
        (
            f"f = Mul(x, slope) b = Mul(x, bend) q = Mul(b, x) a = Add(q, one) d = Mul(f, a) {TANH} m = Mul(x, half) y = Mul(m, s)",
            "applied",
        ),
        (f"d = Mul(x, slope) {ERF} m = Mul(x, s) y = Mul(m, half)", "skipped"),
        (f"d = Mul(x, inverse) {TANH} m = Mul(x, s) y = Mul(m, half)", "skipped"),
        (f"d = Mul(x, inverse) {ERF} m = Mul(x, s) y = Mul(m, two)", ""),
        (f"d = Mul(x, inverse) {ERF} z = Mul(x, s) y = Mul(z, half)", ""),
    ],
)
def test_gelu_is_found_however_it_is_written(text: str, told_of: str) -> None:
    outputs = "float[3,40] y, float[3,40] z" if "z = " in text else "float[3,40] y"
    model = parse(f"g (float[3,40] x) => ({outputs}) {{ {text} }}", **{name: np.float32(n) for name, n in NUMBERS.items() if name in text})
    assert [line.split()[1] for line in told(model) if line.startswith("GeluOfParts") and " y" in line] == ([told_of] if told_of else [])
    feeds = {"x": 3 * floats(3, 40)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    ("text", "told_of"),
    [
        ("s = Softplus(x) t = Tanh(s) y = Mul(x, t)", "applied"),
        ("s = Softplus(x) t = Tanh(s) y = Mul(t, x)", "applied"),
        ("s = Softplus(x) t = Tanh(s) z = Mul(t, x) y = Add(z, s)", "applied"),
        ("r = Relu(x) s = Softplus(r) t = Tanh(s) y = Mul(x, t)", "skipped"),
        ("s = Tanh(x) t = Softplus(s) y = Mul(x, t)", ""),
    ],
)
def test_mish_is_found_however_it_is_written(text: str, told_of: str) -> None:
    model = parse(f"g (float[3,40] x) => (float[3,40] y) {{ {text} }}")
    assert [line.split()[1] for line in told(model) if line.startswith("MishOfParts")] == ([told_of] if told_of else [])
    feeds = {"x": 9 * floats(3, 40)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    ("shape", "repeats", "applies"),
    [
        ((3, 9), (4, 3), True),
        ((2, 3, 5), (1, 2, 1), True),
        ((1, 1, 40), (2, 1, 3), True),
        ((5, 3), (1, 7), False),
        ((1, 9), (4, 1), False),
        ((3, 9), (0, 2), False),
    ],
)
def test_repeated_blocks_are_copied_as_rows(shape: tuple[int, ...], repeats: tuple[int, ...], applies: bool) -> None:
    dims, size = (",".join(map(str, sizes)) for sizes in (shape, np.multiply(shape, repeats)))
    model = parse(f"g (float[{dims}] x) => (float[{size}] y) {{ t = Tile(x, r) y = Neg(t) }}", r=np.array(repeats, np.int64))
    assert any(line.startswith("ExpandOfTile") and line.split()[1] == "applied" for line in told(model)) == applies
    feeds = {"x": floats(*shape)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_weights_that_others_use_stay_as_they_are() -> None:
    text = """g (float[2,4,7,7] x) => (float[2,6,5,5] y, float[2,6,5,5] z) {
        c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, variance) r = Relu(x) z = Conv(r, w) }"""
    model = parse(text, **STATISTICS, w=floats(6, 4, 3, 3))
    feeds = {"x": floats(2, 4, 7, 7)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_half_precision_weights_stay_half_precision() -> None:
    half = {name: value.astype(np.float16) for name, value in (*STATISTICS.items(), ("w", floats(6, 4, 3, 3)))}
    model = ir.from_proto(
        parse(
            "g (float16[2,4,7,7] x) => (float16[2,6,5,5] y) { c = Conv(x, w) y = BatchNormalization(c, scale, shift, mean, variance) }",
            **half,
        )
    )
    apply_rules(model.graph, [FoldBatchNormalization()])
    node = model.graph.outputs[0].producer()
    assert node is not None
    assert [value.const_value.dtype for value in node.inputs[1:]] == [ir.DataType.FLOAT16] * 2  # type: ignore[union-attr]
