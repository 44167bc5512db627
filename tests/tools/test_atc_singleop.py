"""`atc --singleop` makes an offline model of each operator in a list."""

from __future__ import annotations

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
import numpy as np
import pytest

from anycann.om.operator_spec import METADATA_KEY, from_json
from anycann.om.reader import read_offline_model
from anycann.session import InferenceSession
from anycann.tools.cli import main

Atc = Callable[..., tuple[int, str]]


def tensor(dtype: str, *shape: int, **more: object) -> dict[str, object]:
    return {"format": "ND", "shape": list(shape), "type": dtype, **more}


@pytest.fixture
def atc(tmp_path: Path) -> Atc:
    def run(operators: object, *words: str) -> tuple[int, str]:
        path = tmp_path / "operators.json"
        path.write_text(json.dumps(operators))
        result = CliRunner().invoke(main, ["atc", f"--singleop={path}", f"--output={tmp_path / 'models'}", *words])
        return result.exit_code, result.output

    return run


def test_each_operator_becomes_a_file_with_ascends_name(atc: Atc, tmp_path: Path) -> None:
    half = tensor("float16", 4, 3)
    operators: list[dict[str, Any]] = [
        {"op": "Add", "input_desc": [tensor("int32", 8, 16)] * 2, "output_desc": [tensor("int32", 8, 16)]},
        {
            "op": "ReduceSumD",
            "name": "sum",
            "input_desc": [half],
            "output_desc": [tensor("float16", 4)],
            "attr": [{"name": "axes", "type": "list_int", "value": [1]}, {"name": "keep_dims", "type": "bool", "value": False}],
        },
    ]
    status, output = atc(operators, "--soc_version=Ascend310")
    assert (status, "ATC run success" in output) == (0, True), output
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["0_Add_3_2_8_16_3_2_8_16_3_2_8_16.om", "sum.om"]
    model = read_offline_model(str(tmp_path / "models" / "sum.om"))
    spec = from_json(model.metadata[METADATA_KEY], "here")
    assert (spec.op, spec.attributes, spec.defaults) == ("ReduceSumD", {"axes": [1], "keep_dims": False}, {"keep_dims": False})
    assert model.metadata["soc_version"] == "Ascend310"
    x = np.random.default_rng(1).random((4, 3)).astype(np.float16)
    (found,) = InferenceSession(str(tmp_path / "models" / "sum.om")).run(None, {"x0": x})
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, x.astype(np.float64).sum(1), rtol=1e-3)


def test_operators_of_which_none_compiles_leave_no_folder(atc: Atc, tmp_path: Path) -> None:
    unknown = {"op": "NoSuchOperator", "input_desc": [tensor("int32", 8)], "output_desc": [tensor("int32", 8)]}
    assert atc([unknown])[0] == 2
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        ([], "it does not hold a list of operators"),
        ([{"op": "Add"}], "operator 0: output_desc is empty"),
        ([{"op": "Add", "input_desc": [tensor("int33", 1)]}], "operator 0, input_desc 0: type is int33"),
        ([{"op": "Ad", "input_desc": [tensor("int32", 1)], "output_desc": [tensor("int32", 1)]}], "did you mean Add?"),
        (
            [{"op": "Muls", "input_desc": [tensor("float", 1)], "output_desc": [tensor("float", 1)],
              "attr": [{"name": "value", "type": "float", "value": "1"}]}],
            "operator 0, attr 0: value is '1'; accepted: float",
        ),
    ],
)  # fmt: skip
def test_a_wrong_list_is_refused_with_its_place(atc: Atc, operators: object, text: str) -> None:
    status, output = atc(operators)
    assert status == 2
    assert text in output
