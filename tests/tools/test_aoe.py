"""The command aoe: it tunes, writes Ascend's files, fills the bank that atc and sessions ask, and goes on after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
import re

import numpy as np
import onnx
import onnx.parser
import pytest

from anycann.aoe.model_tasks import model_tasks
from anycann.compiler import CompileOptions
from anycann.frontends.onnx.load import load_model
from anycann.om.operator_spec import METADATA_KEY, from_json
from anycann.om.plan import NativeStep
from anycann.om.reader import read_offline_model
from anycann.session import InferenceSession
from anycann.tuning.bank_files import OF_CORES, Entry, keep
from tests.tools.conftest import Invoke, Process
from tests.tools.models import ADD, matmul_model, save_model

CONVOLUTIONS = """
<ir_version: 9, opset_import: ["" : 18]>
net (float[1,32,24,24] x, float[32,32,3,3] w) => (float[1,32,24,24] y)
{
    [conv] t = Conv<pads = [1, 1, 1, 1]>(x, w)
    [activation] y = Relu(t)
}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work here, with a bank of one's own and few candidates."""
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.setenv("ENABLE_TUNE_BANK", "True")
    monkeypatch.setenv("TUNING_NUM", "6")
    monkeypatch.setattr("anycann.aoe.comparing.SECONDS", 0.1)
    for name in ("FIRST_SECONDS", "SECOND_SECONDS"):
        monkeypatch.setattr(f"anycann.aoe.subgraphs.{name}", 0.1)
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return matmul_model(tmp_path / "product.onnx", 96, 80)


@pytest.fixture
def convolutions(tmp_path: Path) -> Path:
    made = onnx.parser.parse_model(CONVOLUTIONS)
    weight = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    del made.graph.input[1]
    onnx.save(made, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


OPERATORS = [
    {
        "op": "MatMul",
        "name": "product",
        "input_desc": [{"format": "ND", "shape": [48, 40], "type": "float"}, {"format": "ND", "shape": [40, 56], "type": "float"}],
        "output_desc": [{"format": "ND", "shape": [48, 56], "type": "float"}],
    }
]
WORDS = ("--framework=5", "--input_shape=x:64,96", "--threads=1")


def test_operator_tuning_writes_ascends_files_and_fills_the_bank(invoke: Invoke, model: Path, place: Path) -> None:
    result = invoke("aoe", f"--model={model}", "--job_type=2", *WORDS)
    assert result.exit_code == 0, result.output
    assert re.search(r"\[Aoe\]product Tuning process finished\. Performance improved by -?[\d.]+%", result.output)
    assert re.search(r"\[Aoe\]Aoe process finished,cost time \d+s\.", result.output)
    (tuned,) = (place / "work").glob("aoe_workspace/product_*/tunespace/result/product_*_tune.om")
    (report,) = (place / "work").glob("aoe_result_opat_*_pid*.json")
    basic, operators = json.loads(report.read_text())
    assert basic["basic"]["tuning_name"] == "product"
    assert operators["OPAT"]["model_baseline_performance(ms)"] > 0
    assert operators["OPAT"]["repo_summary"]["total_num"] == 1
    assert list((place / "bank").glob("op/*/unified_bank/*_1_AiCore_MatMul.json"))
    x = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    wanted = InferenceSession(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(InferenceSession(tuned).run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)


def test_what_the_bank_knows_is_not_tuned_again_unless_asked(invoke: Invoke, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("aoe", "-m", model, "-j", "2", *WORDS, "--json")
    first, second = (json.loads(invoke(*words).stdout)[0] for _ in range(2))
    assert first["candidates"] >= 4
    assert second["candidates"] == 0
    monkeypatch.setenv("REPEAT_TUNE", "True")
    assert json.loads(invoke(*words).stdout)[0]["candidates"] >= 4


def test_what_is_built_in_is_tuned_only_when_asked_and_only_what_beats_it_is_kept(
    invoke: Invoke, model: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = model_tasks(load_model(model), CompileOptions(input_shapes={"x": (64, 96)})).tasks.values()
    keep([Entry(task.space, task.default, 2e-6, 1e-6, 1)], place / "built_in", OF_CORES)
    monkeypatch.setattr("anycann.aoe.operators.BUILT_IN", place / "built_in")
    monkeypatch.setattr("anycann.tuning.tuner.WORTHWHILE", 0.0)  # nothing is
    words = ("aoe", "-m", model, "-j", "2", *WORDS, "--json")
    assert json.loads(invoke(*words).stdout)[0]["candidates"] == 0
    monkeypatch.setenv("REPEAT_TUNE", "True")
    assert json.loads(invoke(*words).stdout)[0]["candidates"] >= 4
    assert not list((place / "bank").rglob("*.json"))


def test_atc_takes_what_the_bank_says(invoke: Invoke, model: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("aoe", "-m", model, "-j", "2", *WORDS).exit_code == 0
    (file,) = (place / "bank").glob("op/*/unified_bank/*.json")
    content = json.loads(file.read_text())
    ((entry,),) = content.values()
    entry["knowledge"] |= {"rows": 3, "vectors": 1, "row_blocks": 2, "panels_inner": 0, "copy": 0}
    file.write_text(json.dumps(content))
    convert = ("atc", f"--model={model}", "--framework=5", f"--output={place}/out", "--input_shape=x:64,96")
    made = set()
    for enabled in ("True", "False"):
        monkeypatch.setenv("ENABLE_TUNE_BANK", enabled)
        assert invoke(*convert).exit_code == 0
        (program,) = read_offline_model(place / "out.om").programs.values()
        made |= {task.symbol for step in program.steps if isinstance(step, NativeStep) for task in step.tasks}
        x = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
        (made_by_atc,) = InferenceSession(place / "out.om").run(None, {"x": x})
        np.testing.assert_allclose(made_by_atc, InferenceSession(model).run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
    assert len(made) == 2


def test_subgraph_tuning_tries_algorithms_fusion_and_layout(invoke: Invoke, convolutions: Path, place: Path) -> None:
    result = invoke("aoe", f"--model={convolutions}", "--job_type=1", "--framework=5", "--threads=1", "--json")
    assert result.exit_code == 0, result.output
    (facts,) = json.loads(result.stdout)
    assert facts["candidates"] >= 3
    (journal,) = (place / "work").rglob("journal.jsonl")
    points = [json.loads(line)["point"] for line in journal.read_text().splitlines()]
    assert {name for point in points for name, choice in point.items() if not choice} >= {"winograd", "fusion", "layout", "bands"}
    (report,) = (place / "work").glob("aoe_result_sgat_*_pid*.json")
    assert "SGAT" in json.loads(report.read_text())[1]
    x = np.random.default_rng(1).standard_normal((1, 32, 24, 24)).astype(np.float32)
    tuned = InferenceSession(facts["output"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(tuned, InferenceSession(convolutions).run(None, {"x": x})[0], rtol=1e-3, atol=1e-3)


def test_a_model_that_stays_as_it_was_has_no_gain_however_its_runs_went(
    invoke: Invoke, model: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model may be measured faster by chance."""
    monkeypatch.setattr("anycann.aoe.operators.compare", lambda models, threads: [0.001 / (1 + number) for number in range(len(models))])
    monkeypatch.setattr("anycann.tuning.tuner.WORTHWHILE", 0.0)
    result = invoke("aoe", "-m", model, "-j", "2", *WORDS)
    assert "Performance improved by 0.00%" in result.output
    (report,) = (place / "work").glob("aoe_result_opat_*_pid*.json")
    opat = json.loads(report.read_text())[1]["OPAT"]
    assert opat["model_result_performance(ms)"] == opat["model_baseline_performance(ms)"] == 1.0
    assert opat["opat_tuning_result"] == "tuning successful, but no better result was found"


@pytest.mark.parametrize(("last", "kept"), [(0.9, True), (1.04, False)])
def test_subgraph_tuning_keeps_what_its_last_measurement_calls_faster(
    invoke: Invoke, convolutions: Path, place: Path, monkeypatch: pytest.MonkeyPatch, last: float, kept: bool
) -> None:
    """What is tried is always 10 % faster; the measurement at the end says `last`."""
    ratios = {"trial.om": 0.9, "best.om": last}
    monkeypatch.setattr("anycann.aoe.subgraphs.compare", lambda models, *_: [1.0, *(ratios[path.name] for path in map(Path, models[1:]))])
    result = invoke("aoe", f"--model={convolutions}", "--job_type=1", "--framework=5", "--threads=1", "--json")
    assert result.exit_code == 0, result.output
    (report,) = (place / "work").glob("aoe_result_sgat_*_pid*.json")
    told = json.loads(report.read_text())[1]["SGAT"]
    assert bool(told["repo_modified_operators"]) is kept
    assert told["model_result_performance(ms)"] == (900.0 if kept else 1000.0)
    assert any((place / "bank").rglob("*.json")) is kept
    x = np.ones((1, 32, 24, 24), np.float32)
    tuned = InferenceSession(json.loads(result.stdout)[0]["output"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(tuned, InferenceSession(convolutions).run(None, {"x": x})[0], rtol=1e-3, atol=1e-3)


def test_only_the_named_nodes_are_tuned(invoke: Invoke, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_OPS_NAME", "nothing")
    result = invoke("aoe", "-m", model, "-j", "2", *WORDS)
    assert result.exit_code == 2
    assert "'nothing' has no kernel to tune" in result.output
    (tmp_path / "names").write_text(f"{onnx.load(model).graph.node[0].name}\n")
    assert invoke("aoe", "-m", model, "-j", "2", *WORDS, f"--tune_ops_file={tmp_path}/names").exit_code == 0


def test_a_tuning_goes_on_with_reload(invoke: Invoke, model: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("aoe", "-m", model, "-j", "2", *WORDS, "--reload").exit_code == 2
    assert invoke("aoe", "-m", model, "-j", "2", *WORDS).exit_code == 0
    monkeypatch.setenv("REPEAT_TUNE", "True")
    monkeypatch.setenv("TUNING_NUM", "3")
    (journal,) = (place / "work").glob("aoe_workspace/*/tunespace/journal.jsonl")
    before = len(journal.read_text().splitlines())
    assert invoke("aoe", "-m", model, "-j", "2", *WORDS, "--reload").exit_code == 0
    assert len(list((place / "work").glob("aoe_workspace/*"))) == 1
    assert len(journal.read_text().splitlines()) - before <= 4  # nothing is searched again, only what is best is confirmed


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ((), 2, "Missing option '--job_type'"),
        (("-j", "3"), 2, "is not one of '1', '2'"),
        (("-j", "2"), 2, "--model"),
        (("-j", "1", "--cluster"), 1, "accepted with --job_type=2"),
        (("-j", "2", "--ip=10.0.0.1"), 1, "--cluster tunes on many machines"),
        (("-j", "2", "--device=1"), 2, "accepted: 0"),
        (("-j", "2", "--auto_tune_mode=XX"), 2, "accepted: RL, GA"),
        (("-j", "2", "--framework=0", "--model=MODEL"), 1, "Caffe"),
        (("-j", "2", "--framework=5", "--model=MODEL"), 2, "leaves shapes open"),
        (("-j", "1", "--singleop=LIST"), 2, "accepted with --job_type=2"),
        (("-j", "2", "--singleop=MODEL"), 2, "Parse json file"),
    ],
    ids=str,
)
def test_what_can_not_be_done_is_said(invoke: Invoke, tmp_path: Path, words: tuple[str, ...], status: int, text: str) -> None:
    open_shapes = save_model(ADD, tmp_path / "add.onnx")
    operators = tmp_path / "operators.json"
    operators.write_text(json.dumps(OPERATORS))
    result = invoke("aoe", *(word.replace("MODEL", str(open_shapes)).replace("LIST", str(operators)) for word in words))
    assert result.exit_code == status, result.output
    assert text in result.output


def test_the_operators_of_a_list_are_tuned_into_models_that_say_what_they_are(invoke: Invoke, tmp_path: Path) -> None:
    operators = tmp_path / "operators.json"
    operators.write_text(json.dumps([*OPERATORS, {**OPERATORS[0], "name": ""}]))
    result = invoke("aoe", "-j", "2", f"--singleop={operators}", f"--output={tmp_path / 'tuned'}", "--threads=1")
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "tuned").iterdir()} == {"product.om", "1_MatMul_0_2_48_40_0_2_40_56_0_2_48_56.om"}
    model = read_offline_model(str(tmp_path / "tuned" / "product.om"))
    assert from_json(model.metadata[METADATA_KEY], "here").op == "MatMul"
    a, b = (np.random.default_rng(n).standard_normal(shape, np.float32) for n, shape in enumerate(((48, 40), (40, 56))))
    (found,) = InferenceSession(str(tmp_path / "tuned" / "product.om")).run(None, {"x0": a, "x1": b})
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_the_shim_is_found_under_ascends_name(process: Process) -> None:
    from anycann.tools.env import __file__ as tools

    shim = Path(tools).parents[1] / "shims" / "bin" / "aoe"
    assert shim.stat().st_mode & 0o111
    assert "cli aoe" in shim.read_text()


def test_atc_tunes_where_auto_tune_mode_says_so_and_takes_banks_by_path(invoke: Invoke, model: Path, place: Path) -> None:
    convert = ("atc", f"--model={model}", "--framework=5", f"--output={place}/out", "--input_shape=x:64,96")
    assert invoke(*convert, "--auto_tune_mode=XX").exit_code == 2
    result = invoke(*convert, "--auto_tune_mode=RL,GA")
    assert result.exit_code == 0, result.output
    assert list((place / "bank").glob("op/*/unified_bank/*.json"))
    assert invoke(*convert, f"--op_bank_path={place}/bank", f"--mdl_bank_path={place}/bank").exit_code == 0
    assert invoke(*convert, f"--op_bank_path={place}/nowhere").exit_code == 2
