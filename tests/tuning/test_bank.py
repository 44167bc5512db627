"""Knowledge banks: what is kept is found again, by the same problem on the same machine only; what is damaged is never used."""

from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from anycann.codegen.kernels.matmul_space import MatmulSpace
from anycann.codegen.space import Choices, Space
from anycann.session import InferenceSession
from anycann.target.target import NAMED
from anycann.tuning.bank import Bank, custom_folder, open_bank
from anycann.tuning.bank_files import Entry, bank_file, keep
from anycann.tuning.identity import key_of
from tests.tuning.cases import convolution_task, matmul_task

TARGET = NAMED["avx2"]
SPACE = convolution_task(target=TARGET).space
OTHER = {"columns": 3, "blocks": 2, "unroll": 2, "merge": 0, "blocks_inner": 1, "depth": 0, "images": 0}


def entry(space: Space[Any] = SPACE, **point: int) -> Entry:
    return Entry(space, {**OTHER, **point}, 2e-3, 1e-3, 2)


def asked(folder: Path) -> Bank:
    return Bank([folder], TARGET)


def test_what_is_kept_is_found_again_and_generators_use_it(tmp_path: Path) -> None:
    assert keep([entry()], tmp_path) == ["add"]
    assert keep([entry(columns=4)], tmp_path) == ["update"]
    bank = asked(tmp_path)
    assert bank.find(SPACE) == {**OTHER, "columns": 4}
    assert Choices(tuned=bank).tile(SPACE).columns == 4
    assert bank.find(matmul_task(target=TARGET).space) is None


def test_files_and_fields_have_ascends_names(tmp_path: Path) -> None:
    keep([entry()], tmp_path)
    (path,) = tmp_path.rglob("*.json")
    assert path == tmp_path / "op" / "avx2" / "unified_bank" / "avx2_2_AiCore_Conv.json"
    ((key, (kept,)),) = json.loads(path.read_text()).items()
    assert key == key_of(SPACE)
    assert len(key) == 32
    assert kept["knowledge"] == OTHER
    assert kept["info_dict"]["op_type"] == "Conv"
    assert kept["performance_before_tune(us)"] == 2000.0


def test_another_machine_problem_or_generator_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep([entry()], tmp_path)
    bank = asked(tmp_path)
    assert bank.find(convolution_task(size=21, target=TARGET).space) is None
    assert bank.find(replace(SPACE, target=replace(TARGET, l2_bytes=123))) is None
    assert bank.find(replace(SPACE, target=replace(TARGET, features=TARGET.features + ",+avx512vnni"))) is None
    monkeypatch.setattr(type(SPACE), "version", type(SPACE).version + 1)
    assert bank.find(SPACE) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1', "\x00\x01", '{"a": ' * 2000], ids=repr)
def test_a_file_that_is_no_bank_is_said_and_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    path = bank_file(tmp_path, SPACE, 2)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert asked(tmp_path).find(SPACE) is None
    assert str(path) in caplog.text
    assert "is not used" in caplog.text
    keep([entry()], tmp_path)  # and is mended by the next result
    assert asked(tmp_path).find(SPACE) == OTHER


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e[0].pop("info_dict"),
        lambda e: e[0].update(knowledge={"columns": "4"}),
        lambda e: e[0].update(knowledge={}),
        lambda e: e[0].update(knowledge=[4]),
        lambda e: e[0]["info_dict"].update(in_channels=99),
        lambda e: e[0]["info_dict"].update(version=0),
        lambda e: e.clear(),
    ],
)
def test_an_entry_that_is_not_what_its_key_says_is_said_and_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Any) -> None:
    keep([entry(), Entry(matmul_task(target=TARGET).space, {"rows": 1}, 1.0, 1.0, 2)], tmp_path)
    path = bank_file(tmp_path, SPACE, 2)
    content = json.loads(path.read_text())
    change(content[key_of(SPACE)])
    path.write_text(json.dumps(content))
    assert asked(tmp_path).find(SPACE) is None
    assert "1 of 1 entries are damaged or foreign" in caplog.text


def test_a_point_outside_the_space_is_not_used(tmp_path: Path) -> None:
    keep([entry(columns=1000)], tmp_path)
    assert Choices(tuned=asked(tmp_path)).tile(SPACE) == SPACE.default()


def test_of_several_banks_the_first_that_knows_the_problem_is_asked(tmp_path: Path) -> None:
    first, second, product = tmp_path / "first", tmp_path / "second", matmul_task(target=TARGET)
    keep([entry(columns=2)], first)
    keep([entry(columns=1), Entry(product.space, {**product.default, "rows": 1}, 1.0, 1.0, 2)], second)
    bank = Bank([first, second], TARGET)
    assert bank.find(SPACE) == {**OTHER, "columns": 2}
    assert bank.find(product.space) == {**product.default, "rows": 1}


def test_the_environment_says_where_results_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ASCEND_CACHE_PATH", str(tmp_path / "ascend"))
    assert custom_folder() == tmp_path / "ascend" / "aoe_data"
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    assert custom_folder() == tmp_path / "bank"
    monkeypatch.delenv("TUNE_BANK_PATH")
    monkeypatch.delenv("ASCEND_CACHE_PATH")
    assert custom_folder() == tmp_path / "cache" / "tuning"
    monkeypatch.setenv("ENABLE_TUNE_BANK", "False")
    assert open_bank(TARGET) is None
    monkeypatch.setenv("ENABLE_TUNE_BANK", "True")
    assert open_bank(TARGET) is not None


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from anycann.tuning.bank_files import Entry, keep
from tests.tuning.cases import convolution_task
from tests.tuning.test_bank import OTHER, TARGET
for size in range(int(sys.argv[1]), int(sys.argv[1]) + 10):
    keep([Entry(convolution_task(size=size, target=TARGET).space, OTHER, 1.0, 1.0, 2)], Path(sys.argv[2]))
"""
    running = [subprocess.Popen([sys.executable, "-c", code, str(first), str(tmp_path)]) for first in (10, 20, 30)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(asked(tmp_path)) == 30


def test_a_session_takes_its_tiles_from_the_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        net (float[30,40] x, float[40,50] w) => (float[30,50] y) { y = MatMul(x, w) }""")
    weight = np.random.default_rng(1).standard_normal((40, 50)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    del model.graph.input[1]
    asked: list[MatmulSpace] = []
    unasked = MatmulSpace.default

    def default(space: MatmulSpace) -> Any:
        asked.append(space)
        return unasked(space)

    monkeypatch.setattr(MatmulSpace, "default", default)
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path))
    monkeypatch.setenv("ENABLE_TUNE_BANK", "True")
    InferenceSession(model).run(None, {"x": x})
    (space,) = set(asked)
    keep([Entry(space, {**space.point(unasked(space)), "rows": 2, "vectors": 1, "row_blocks": 3}, 1.0, 0.5, 1)], tmp_path)
    asked.clear()
    (found,) = InferenceSession(model).run(None, {"x": x})
    assert asked == []
    np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-4)
