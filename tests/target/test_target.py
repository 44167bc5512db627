"""Targets by name, with features added and taken away, and processors nobody has heard of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anycann.codegen.kernels.arithmetic_rate import fma_rate, multiplies_bfloat
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.objects import emit_object
from anycann.support.errors import UsageError
from anycann.target.target import by_name, cache_size, host, processor
from anycann.te import dtypes
from anycann.te import tensor as te


def test_features_behind_a_name_are_added_and_taken_away():
    target = by_name("avx2,+avxvnni,-f16c")
    assert target.has("avxvnni")
    assert not target.has("f16c")
    assert target.lanes == by_name("avx2").lanes
    assert target.key != by_name("avx2").key


def test_the_processor_without_a_feature_is_a_target(monkeypatch):
    monkeypatch.setenv("ANYCANN_TARGET", "host,-fma")
    assert not host().has("fma")
    assert host().lanes == processor().lanes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("avx1024", "target 'avx1024' is unknown; accepted: host, sse"),
        ("avx2,avxvnni", "'avxvnni' is no feature"),
        ("avx2,+", "'\\+' is no"),
    ],
)
def test_what_is_no_target_is_refused(name, said):
    with pytest.raises(UsageError, match=said):
        by_name(name)


def test_zen4_takes_wide_vectors_in_halves_and_gains_by_pairs_of_bfloat16():
    zen4 = by_name("znver4")
    assert (fma_rate(zen4), fma_rate(by_name("avx512"))) == (1.0, 2.0)
    assert multiplies_bfloat(zen4)
    assert not multiplies_bfloat(replace(zen4, cpu="cooperlake")), "there pairs take as long as two products of float32"


@pytest.mark.parametrize(("size", "nbytes"), [("512K", 512 << 10), ("2M", 2 << 20), ("0K", 1 << 20), ("", 1 << 20), ("-1", 1 << 20)])
def test_a_cache_that_the_system_does_not_describe_has_a_usual_size(tmp_path, size, nbytes):
    for index, facts in enumerate((("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", size))):
        (tmp_path / f"index{index}").mkdir()
        for name, text in zip(("level", "type", "size"), facts, strict=True):
            (tmp_path / f"index{index}" / name).write_text(f"{text}\n")
    assert cache_size("2", "Unified", tmp_path) == nbytes
    assert cache_size("1", "Data", tmp_path) == 48 << 10
    assert cache_size("1", "Data", tmp_path / "absent") == 32 << 10


@pytest.mark.parametrize("cpu", ["", "generic", "x86-64"])
def test_a_processor_that_llvm_has_no_name_for_gets_code_for_its_features(cpu):
    x = te.placeholder("x", (40,), dtypes.float32)
    for name in ("sse", "avx2", "znver4"):
        target = replace(by_name(name), cpu=cpu)
        kernel = generate([Output("y", te.compute((40,), lambda i: x[i] * 3 + 1))], {}, target)
        assert emit_object(kernel.ir, target)
        assert fma_rate(target) in (1.0, 2.0)
