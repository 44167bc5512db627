"""A session of an offline model beside one of the original, and precision modes."""

from __future__ import annotations

from pathlib import Path
import shutil

import numpy as np
import onnx
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model
from anycann.support.errors import UsageError
from tests.session.models import PRODUCT, floats


def gears(tmp_path: Path) -> Path:
    path = tmp_path / "model.om"
    write_offline_model(path, compile_model(PRODUCT, CompileOptions(gears=({"x": (2, 40)}, {"x": (16, 40)}))))
    return path


def test_an_offline_model_gives_what_the_original_gives_bit_for_bit(tmp_path: Path) -> None:
    path = gears(tmp_path)
    for rows in (2, 16, 5):
        feeds = {"x": floats(rows, 40)}
        (om,), (original,) = InferenceSession(path).run(None, feeds), InferenceSession(PRODUCT).run(None, feeds)
        np.testing.assert_array_equal(om, original)
    np.testing.assert_array_equal(InferenceSession(path.read_bytes()).run(None, feeds)[0], original)


def test_gears_share_one_copy_of_the_weights(tmp_path: Path) -> None:
    one = compile_model(PRODUCT, CompileOptions(gears=({"x": (16, 40)},)))
    two = compile_model(PRODUCT, CompileOptions(gears=({"x": (16, 40)}, {"x": (17, 40)}, {"x": (64, 40)})))
    assert len(two.programs) == 3
    assert two.constants.nbytes <= one.constants.nbytes + 4096


def test_without_its_key_the_code_is_compiled_again_and_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gears(tmp_path)
    feeds = {"x": floats(16, 40)}
    want = InferenceSession(path).run(None, feeds)[0]
    assert InferenceSession(path).engines() == []
    other = tmp_path / "another"
    other.mkdir(mode=0o700)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(other))
    untrusted = InferenceSession(path)
    np.testing.assert_array_equal(untrusted.run(None, feeds)[0], want)
    assert [report.engine for report in untrusted.engines()] == ["AiCore", "AiCore"]
    shutil.rmtree(other)


@pytest.mark.parametrize("mode", ["force_fp16", "allow_mix_precision_bf16"])
def test_a_precision_mode_holds_for_shapes_that_are_no_gear_too(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "model.om"
    write_offline_model(path, compile_model(PRODUCT, CompileOptions(gears=({"x": (2, 40)},), precision_mode=mode)))
    x = floats(2, 40)
    (gear,) = InferenceSession(path).run(None, {"x": x})
    (other,) = InferenceSession(path).run(None, {"x": np.concatenate([x, x])})
    np.testing.assert_array_equal(other[:2], gear)
    exact = np.maximum(x @ onnx.numpy_helper.to_array(PRODUCT.graph.initializer[0]), 0)
    assert 0 < np.abs(gear - exact).max() < (0.02 if mode == "force_fp16" else 0.2)


@pytest.mark.parametrize("mode", ["force_fp16", "mixed_bfloat16"])
def test_a_session_compiles_in_the_precision_it_is_asked_for(tmp_path: Path, mode: str) -> None:
    path, x = tmp_path / "model.om", floats(2, 40)
    write_offline_model(path, compile_model(PRODUCT, CompileOptions(gears=({"x": (2, 40)},), precision_mode=mode)))
    (want,) = InferenceSession(path, SessionOptions(precision_mode=mode)).run(None, {"x": x})
    (got,) = InferenceSession(PRODUCT, SessionOptions(precision_mode=mode)).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)
    (exact,) = InferenceSession(PRODUCT).run(None, {"x": x})
    assert np.abs(got - exact).max() > 0


def test_a_precision_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    path = gears(tmp_path)
    with pytest.raises(UsageError, match=r"converted with --precision_mode=must_keep_origin_dtype; for 'mixed_bfloat16' it"):
        InferenceSession(path, SessionOptions(precision_mode="mixed_bfloat16"))
    with pytest.raises(UsageError, match="precision mode 'fast' is unknown; accepted: must_keep_origin_dtype"):
        InferenceSession(PRODUCT, SessionOptions(precision_mode="fast"))
