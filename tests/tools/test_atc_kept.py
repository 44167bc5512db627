"""The files of atc that keep operators out of a 16-bit precision mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from anycann.passes.precision import Kept
from anycann.session import InferenceSession
from anycann.tools.atc import run_atc
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_kept import kept_of, onnx_types
from anycann.tools.atc_parse import CommandLine


def kept(folder: Path, option: str, text: str, mode: str = "force_fp16") -> Kept:
    path = folder / "file"
    path.write_text(text)
    return kept_of(CommandLine({option: str(path)}, ()), mode)


def test_nodes_and_types_are_read(tmp_path: Path) -> None:
    assert kept(tmp_path, "keep_dtype", "# why\nPow_4\n\nOpType::ReduceMeanD\n/gnn/Mul_2") == Kept(
        frozenset({"Pow_4", "/gnn/Mul_2"}), frozenset({"ReduceMean"})
    )
    mixed = '{"black-list": {"to-add": ["LayerNorm"], "to-remove": ["Add"]}, "white-list": {"to-add": ["Sub"]}}'
    assert kept(tmp_path, "modify_mixlist", mixed, "allow_mix_precision").types == {"LayerNormalization"}
    assert kept(tmp_path, "modify_mixlist", mixed) == Kept()  # it belongs to mixed precision only
    types = (
        "a::InputDtype:float32,float32,OutputDtype:FLOAT\nb::InputDtype:float16,OutputDtype:float32\nOpType::MatMulV2:OutputDtype:float32"
    )
    assert kept(tmp_path, "customize_dtypes", types) == Kept(frozenset({"a"}), frozenset({"MatMul", "Gemm"}))


@pytest.mark.parametrize(
    ("ascend", "onnx_names"),
    [("SoftmaxV2", ("Softmax",)), ("ReduceSumD", ("ReduceSum",)), ("Conv2D", ("Conv",)), ("BatchMatMulV3", ("MatMul",)), ("Pow", ("Pow",))],
)
def test_types_of_ascend_are_those_of_onnx(ascend: str, onnx_names: tuple[str, ...]) -> None:
    assert onnx_types(ascend) == onnx_names


@pytest.mark.parametrize(
    ("option", "text", "part"),
    [
        ("modify_mixlist", "[1]", "it does not hold an object"),
        ("modify_mixlist", '{"blacklist": {}}', "'blacklist' is not one of"),
        ("modify_mixlist", '{"black-list": {"to-add": "Pow"}}', "'to-add' of 'black-list' is not a list"),
        ("customize_dtypes", "a:InputDtype:float32", "is not `name::InputDtype"),
        ("customize_dtypes", "a::InputDtype:int8", "is not `name::InputDtype"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, option: str, text: str, part: str) -> None:
    with pytest.raises(AtcUsageError, match=part):
        kept(tmp_path, option, text, "allow_mix_precision")


def test_16_bits_for_one_operator_of_a_mode_without_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(AtcUnsupportedError, match="16 bits for single operators are not there yet"):
        kept(tmp_path, "customize_dtypes", "a::InputDtype:float16", "must_keep_origin_dtype")


def test_atc_keeps_what_overflows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """large = x @ (1000 I) is beyond float16."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]> g (float[1, 2] x) => (float[1, 2] y)
        <float[2, 2] up = {1000, 0, 0, 1000}, float[2, 2] down = {0.001, 0, 0, 0.001}> { large = MatMul(x, up) y = MatMul(large, down) }"""
    )
    model.graph.node[0].name, model.graph.node[1].name = "grow", "shrink"
    onnx.save(model, tmp_path / "model.onnx")
    keep = tmp_path / "keep.cfg"
    words = [f"--model={tmp_path}/model.onnx", f"--output={tmp_path}/out", "--framework=5", "--soc_version=Ascend310P3"]
    for text, whole in (("", False), ("grow\nshrink\n", True)):
        keep.write_text(text)
        assert run_atc([*words, f"--keep_dtype={keep}"]) == 0
        (y,) = InferenceSession(f"{tmp_path}/out.om").run(None, {"x": np.array([[300.0, 400.0]], np.float32)})
        assert np.isfinite(y).all() == whole
    keep.write_text("grown")
    assert run_atc([*words, f"--keep_dtype={keep}"]) == 2
    assert "the model has no node grown" in capsys.readouterr().out
