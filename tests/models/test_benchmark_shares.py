"""Shares of the multiply-adds' rate: the probes, which turns are quiet, and the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.support.errors import UsageError
from anycann.target.target import host
from benchmarks.layers import Layer
from benchmarks.peak import KERNEL
from benchmarks.shares import Turns, near_product, share_of, shares, table, usual_share
from tests.models.test_benchmarks import run


def turns(name: str, flops: int, possible: list[float], steady: list[float], near: list[float]) -> Turns:
    return Turns(Layer(name, (name,), ("MatMul",), 0.0), flops, np.array(possible), np.array(steady), np.array(near))


def test_the_near_product_computes_what_it_counts() -> None:
    target, units = host(), 3
    symbol, ir, operations = near_product(target, units)
    a, b, c = (np.ones(target.l1_bytes * units, np.float32) for _ in range(3))
    c[:] = np.nan
    arguments = np.array([array.ctypes.data for array in (a, b, c)], np.int64)
    code = LoadedCode({symbol: emit_object(ir, target)})
    KERNEL(code.address(symbol))(arguments.ctypes.data, 0, units, None)
    written = c[~np.isnan(c)]
    assert np.all(written == written[0])
    k = int(written[0])
    assert written.size * 2 * k == units * operations, "as many sums of k ones as operations are counted"
    assert 4 * k * (2 * target.lanes + 1) < target.l1_bytes, "B and a row of A"


def test_turns_beside_a_neighbour_on_the_core_do_not_count() -> None:
    one = turns("a", 90, [100.0, 100.0, 100.0, 180.0, 500.0], [0.0, 0.01, 0.0, 0.1, 0.0], [0.97, 0.96, 0.97, 0.97, 0.7])
    assert usual_share([one]) == pytest.approx(0.97 * 0.97)
    assert shares([one], usual_share([one])) == {"quiet": "90.0%", "quartiles": "90.0% to 90.0%", "all turns": "90.0%"}
    busy = turns("b", 90, [200.0, 150.0, 120.0, 100.0, 60.0], [0.0] * 5, [0.6, 0.7, 0.8, 0.9, 1.5])
    assert usual_share([busy]) == pytest.approx(0.97 * 0.894), "multiply-adds that were slower than the product say nothing"
    assert busy.quiet(0.95).tolist() == [100.0, 120.0, 150.0], "those that were disturbed least"


def test_a_model_without_kernels_has_no_share() -> None:
    with pytest.raises(UsageError, match="no kernel"):
        usual_share([])


def test_a_model_whose_regions_are_compiled_when_they_are_met_has_a_share(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[64] x) => (float[n] y) {
        at = NonZero(x) z = Transpose(at) w = GatherND(x, z) y = Exp(w) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    assert share_of(tmp_path / "model.onnx", {"x": np.arange(64, dtype=np.float32)}, 1, 0.02) > 0


def test_kernels_of_one_size_are_one_row_and_the_longest_comes_first() -> None:
    steady, near = [0.0] * 3, [0.97] * 3
    found = [turns(name, 50, [100.0] * 3, steady, near) for name in "ab"] + [turns("c", 270, [300.0] * 3, steady, near)]
    lines = table(found, 0.9)
    assert lines[2] == "| 1 x c (MatMul) | 60.0% | 90.0% | 90.0% to 90.0% | 90.0% |"
    assert lines[3] == "| 2 x a (MatMul) | 40.0% | 50.0% | 50.0% to 50.0% | 50.0% |"
    assert lines[4] == "| all |  | 74.0% | 74.0% to 74.0% | 74.0% |"


@pytest.mark.models
@pytest.mark.slow
def test_the_shares_of_a_model_are_printed() -> None:
    done = run("benchmarks.shares", "mnist", "--seconds", "0.2", "--threads", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mnist, 2 thread(s): " in done.stdout
    assert "| 1 x Convolution28" in done.stdout
