"""atc from the command line to files and back: golden lines, exit statuses, every mode."""

from __future__ import annotations

import json
import os
from pathlib import Path
import platform

import numpy as np
import onnx
import pytest

from anycann.om.reader import read_offline_model
from anycann.session import InferenceSession
from tests.frontends.tensorflow_graphs import GraphDef
from tests.tools.conftest import Invoke, Process
from tests.tools.models import ADD, TINY, UNKNOWN, matmul_model, save_model

START = "ATC start working now, please wait for a moment."
SUCCESS = "ATC run success, welcome to the next use."
FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"


@pytest.fixture
def add(tmp_path: Path) -> Path:
    return save_model(ADD, tmp_path / "add.onnx")


def atc(invoke: Invoke, model: Path, *words: str) -> tuple[int, list[str]]:
    """(exit status, lines of standard output) of a conversion to `out` beside the model."""
    result = invoke("atc", f"--model={model}", "--framework=5", f"--output={model.parent}/out", *words)
    return result.exit_code, result.stdout.splitlines()


def feeds(rows: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    return {name: generator.standard_normal((rows, 4)).astype(np.float32) for name in "ab"}


def test_a_converted_model_computes_what_the_model_computes(invoke: Invoke, add: Path) -> None:
    status, lines = atc(invoke, add, "--input_shape=a:3,4;b:3,4")
    assert status == 0
    assert (lines[0], lines[-1]) == (START, SUCCESS)
    path = add.parent / "out.om"
    values = feeds(3)
    (y,) = InferenceSession(str(path)).run(None, values)
    np.testing.assert_array_equal(y, np.maximum(values["a"] + values["b"], 0))
    assert read_offline_model(path).metadata["atc_arguments"] == {
        "model": str(add),
        "framework": "5",
        "output": f"{add.parent}/out",
        "input_shape": "a:3,4;b:3,4",
    }


def test_every_gear_is_a_program(invoke: Invoke, add: Path) -> None:
    status, _ = atc(invoke, add, "--input_shape=a:-1,4;b:-1,4", "--dynamic_batch_size=1,2,8")
    assert status == 0
    model = read_offline_model(add.parent / "out.om")
    assert list(model.programs) == [f"float32[{n},4];float32[{n},4]" for n in (1, 2, 8)]
    session = InferenceSession(str(add.parent / "out.om"))
    for rows in (1, 2, 8):
        values = feeds(rows)
        np.testing.assert_array_equal(session.run(None, values)[0], np.maximum(values["a"] + values["b"], 0))


def test_a_model_of_open_shape_is_named_after_the_system_and_runs_for_any_size(invoke: Invoke, add: Path) -> None:
    status, lines = atc(invoke, add, "--input_shape=a:1~9,4;b:-1,4")
    path = add.parent / f"out_linux_{platform.machine()}.om"
    assert (status, lines[-2].startswith(f"{path}: ")) == (0, True)
    values = feeds(7)
    np.testing.assert_array_equal(InferenceSession(str(path)).run(None, values)[0], np.maximum(values["a"] + values["b"], 0))


def test_a_chip_computes_in_half_precision_and_the_host_does_not(invoke: Invoke, tmp_path: Path) -> None:
    model = matmul_model(tmp_path / "product.onnx", rows=64)
    x = np.random.default_rng(2).standard_normal((3, 64)).astype(np.float32)
    weight = onnx.numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    exact = x.astype(np.float64) @ weight
    errors = []
    for soc in ("Ascend310P3", "host"):
        assert atc(invoke, model, "--input_shape=x:3,64", f"--soc_version={soc}")[0] == 0
        (y,) = InferenceSession(str(tmp_path / "out.om")).run(None, {"x": x})
        errors.append(np.linalg.norm(y - exact) / np.linalg.norm(exact))
    assert 1e-5 < errors[0] < 3e-3
    assert errors[1] < 1e-6


def test_outputs_can_be_chosen_and_converted(invoke: Invoke, add: Path) -> None:
    status, _ = atc(invoke, add, "--input_shape=a:2,4;b:2,4", "--out_nodes=activation:0;sum:0", "--output_type=sum:0:FP16")
    assert status == 0
    session = InferenceSession(str(add.parent / "out.om"))
    assert [(item.name, item.type) for item in session.get_outputs()] == [("y", "tensor(float)"), ("s", "tensor(float16)")]
    values = feeds(2)
    y, s = session.run(None, values)
    np.testing.assert_array_equal(y, np.maximum(values["a"] + values["b"], 0))
    np.testing.assert_array_equal(s, (values["a"] + values["b"]).astype(np.float16))


def test_output_tensors_can_be_named(invoke: Invoke, add: Path) -> None:
    assert atc(invoke, add, "--input_shape=a:2,4;b:2,4", "--out_nodes=s", "--output_type=DOUBLE")[0] == 0
    (s,) = InferenceSession(str(add.parent / "out.om")).run(None, feeds(2))
    assert s.dtype == np.float64


def test_inputs_can_be_taken_in_half_precision(invoke: Invoke, add: Path) -> None:
    assert atc(invoke, add, "--input_shape=a:2,4;b:2,4", "--input_fp16_nodes=a")[0] == 0
    session = InferenceSession(str(add.parent / "out.om"))
    assert [item.type for item in session.get_inputs()] == ["tensor(float16)", "tensor(float)"]
    values = feeds(2)
    half = values["a"].astype(np.float16)
    (y,) = session.run(None, {"a": half, "b": values["b"]})
    np.testing.assert_array_equal(y, np.maximum(half.astype(np.float32) + values["b"], 0))


def test_what_falls_back_to_the_host_is_said(invoke: Invoke, tmp_path: Path) -> None:
    status, lines = atc(invoke, save_model(TINY, tmp_path / "tiny.onnx"), "--input_shape=x:1,3,2,2;scale:3")
    assert status == 0
    assert any(line.endswith("operators run on AiCpu (numpy on the host):") for line in lines)
    assert any(line.startswith("  1 ListPlaces") for line in lines)


def test_explain_names_every_pass_rule_and_engine(invoke: Invoke, add: Path) -> None:
    _, lines = atc(invoke, add, "--input_shape=a:2,4;b:2,4", "--explain")
    assert {"specialise:", "rules:", "fusion:", "engines:"} <= set(lines)
    assert "  sum (Add): AiCore" in lines


def test_the_result_is_json_on_demand(invoke: Invoke, add: Path) -> None:
    result = invoke(
        "atc", f"--model={add}", "--framework=5", f"--output={add.parent}/out", "--input_shape=a:2,4;b:2,4", "--message_format=json"
    )
    made = json.loads(result.stdout)
    assert made["ok"] is True
    assert made["output"] == f"{add.parent}/out.om"
    assert made["engines"] == {"AiCore": 2}
    assert made["programs"] == ["float32[2,4];float32[2,4]"]


def test_errors_are_json_on_demand(invoke: Invoke) -> None:
    result = invoke("atc", "--modle=x", "--message_format", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["text"].startswith("Value --modle for parameter atc is invalid")


def test_a_warning_goes_to_standard_error_and_changes_nothing(invoke: Invoke, add: Path) -> None:
    result = invoke(
        "atc", f"--model={add}", "--framework=5", f"--output={add.parent}/out", "--enable_small_channel=1", "--input_shape=a:2,4;b:2,4"
    )
    assert result.exit_code == 0
    assert result.stderr == "[WARNING] --enable_small_channel has no effect: it only tunes Ascend silicon\n"


def test_a_rule_of_ascends_that_is_unknown_here_is_named(invoke: Invoke, add: Path) -> None:
    status, lines = atc(invoke, add, "--input_shape=a:2,4;b:2,4", "--optimization_switch=FoldBatchNormalisation:off;fusion:off")
    assert status == 0
    assert "[WARNING] rule FoldBatchNormalisation is not one of AnyCANN's and is ignored; did you mean FoldBatchNormalization?" in lines


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--input_shape=c:1,4"], 2, "E10016: Opname c specified in --input_shape is not found in the model."),
        (["--input_shape=a:2,4;b:2,4", "--out_nodes=summ:0"], 2, "E10016: Opname summ (did you mean sum?) specified in --out_nodes"),
        (
            ["--input_shape=a:2,4;b:2,4", "--out_nodes=sum:1"],
            2,
            "E10001: Value sum:1 for parameter --out_nodes is invalid. Reason: node sum has 1 outputs",
        ),
        (["--input_shape=a:2,4;b:2,4", "--output_type=sum:0:FP16"], 2, "E10001: Value s for parameter --output_type is invalid."),
        (["--input_shape=a:2,4;b:2,4", "--input_fp16_nodes=x"], 2, "E10016: Opname x specified in --input_fp16_nodes"),
        (["--input_shape=a:2,5;b:2,5"], 2, "E10060: input 'a' has shape [N, 4] in the model; [2, 5] contradicts it"),
        (["--input_shape=a:2,4,1;b:2,4"], 2, "E10060: input 'a' has rank 2"),
        (["--op_name_map={model}"], 1, "E10055: The operation is not supported. Reason: --op_name_map="),
        (["--output=/proc/nowhere/out", "--input_shape=a:2,4;b:2,4"], 2, "E10060: can't write /proc/nowhere/out.om"),
    ],
)
def test_a_failure_ends_with_ascends_line_and_an_error_block(invoke: Invoke, add: Path, words: list[str], status: int, text: str) -> None:
    got, lines = atc(invoke, add, *(word.format(model=add) for word in words))
    assert lines[:2] == [START, FAILURE], lines
    assert lines[2].startswith(text)
    assert lines[3].startswith("        Solution: ")
    assert got == status


def test_a_broken_model_is_named_and_nothing_is_written(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x07\x12\xff")
    status, lines = atc(invoke, path)
    assert status == 1
    assert lines[2].startswith("E10041: ")
    assert lines[-1].endswith(f"while loading {path}")
    assert not (tmp_path / "out.om").exists()


def test_a_conversion_that_fails_leaves_no_folder_that_was_not_there(invoke: Invoke, add: Path) -> None:
    (add.parent / "there").mkdir()
    words = ("--input_shape=a:2,4;b:3,4", f"--output={add.parent}/there/new/deep/out")
    status, lines = atc(invoke, add, *words)
    assert (status, lines[1]) == (1, FAILURE)
    assert sorted(add.parent.rglob("*")) == [add, add.parent / "there"]
    assert atc(invoke, add, "--input_shape=a:2,4;b:2,4", *words[1:])[0] == 0
    assert (add.parent / "there/new/deep/out.om").is_file()


def test_mode_1_writes_offline_and_original_models_as_json(invoke: Invoke, add: Path) -> None:
    assert atc(invoke, add, "--input_shape=a:2,4;b:2,4")[0] == 0
    for source, extra in ((add.parent / "out.om", []), (add, ["--framework=5"])):
        target = add.parent / "graph.json"
        result = invoke("atc", "--mode=1", f"--om={source}", f"--json={target}", *extra)
        assert (result.exit_code, result.stdout) == (0, f"{START}\n{SUCCESS}\n")
        graph = json.loads(target.read_text())["graph"][0]
        assert [op["type"] for op in graph["op"]] == ["Data", "Data", "Add", "Relu", "NetOutput"]
        assert graph["op"][3]["input"] == ["sum:0"]


def test_mode_1_refuses_the_other_kind_of_model(invoke: Invoke, add: Path) -> None:
    assert atc(invoke, add, "--input_shape=a:2,4;b:2,4")[0] == 0
    result = invoke("atc", "--mode=1", f"--om={add.parent}/out.om", f"--json={add.parent}/x.json", "--framework=5")
    assert result.exit_code == 2
    assert "is an offline model" in result.stdout


def test_mode_3_reports_every_operator(invoke: Invoke, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    model = save_model(TINY, tmp_path / "tiny.onnx")
    result = invoke("atc", "--mode=3", f"--model={model}", "--framework=5", f"--check_report={report}")
    assert result.exit_code == 0
    engines = {row["name"]: row["engine"] for row in json.loads(report.read_text())["op"]}
    assert engines["activation"] == "AiCore"
    assert engines["where"] == "AiCpu"


def test_mode_3_refuses_an_operator_nobody_knows(invoke: Invoke, tmp_path: Path) -> None:
    model = save_model(UNKNOWN, tmp_path / "odd.onnx")
    result = invoke("atc", "--mode=3", f"--model={model}", "--framework=5", f"--check_report={tmp_path}/report.json")
    assert result.exit_code == 1
    assert "Frobnicate" in result.stdout
    assert result.stdout.splitlines()[1] == FAILURE


def test_mode_6_shows_what_an_offline_model_is(invoke: Invoke, add: Path) -> None:
    assert atc(invoke, add, "--input_shape=a:2,4;b:2,4", "--soc_version=Ascend310P3")[0] == 0
    result = invoke("atc", "--mode=6", f"--om={add.parent}/out.om")
    lines = result.stdout.splitlines()
    assert lines[:2] == [START, "============ Display Model Info start ============"]
    assert lines[2].startswith("Original Atc command line: atc --")
    assert lines[3] == "system   info: atc_version[anycann 0.1.0], soc_version[Ascend310P3], framework_type[Onnx]."
    assert lines[4].startswith("resource info: memory_size[")
    assert lines[4].endswith("stream_num[1], event_num[0].")
    assert lines[5].startswith("om       info: modeldef_size[")
    assert lines[6:] == ["============ Display Model Info end   ============", SUCCESS]


@pytest.mark.parametrize(
    ("words", "text"), [(["--mode=6"], "E10004: Value for --om is empty."), (["--mode=5"], "graph dumps"), (["--mode=30"], "execute-om")]
)
def test_modes_without_what_they_need_are_refused(invoke: Invoke, words: list[str], text: str) -> None:
    result = invoke("atc", *words)
    assert result.exit_code in (1, 2)
    assert text in result.stdout


def test_atc_works_as_a_command_of_its_own(process: Process, add: Path) -> None:
    done = process("run", "atc", f"--model={add}", "--framework=5", "--output", f"{add.parent}/out", "--input_shape", "a:2,4;b:2,4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == SUCCESS
    assert os.path.isfile(add.parent / "out.om")


def tensorflow_graph(path: Path) -> np.ndarray:
    """A convolution of 1 x 1 with two results, as a frozen graph; answers its weights."""
    weights = np.random.default_rng(3).standard_normal((1, 1, 3, 2)).astype(np.float32)
    graph = GraphDef()
    graph.placeholder("picture", (None, None, None, 3))
    graph.constant("weights", weights)
    graph.node("Conv2D", "picture", "weights", name="conv", strides=[1, 1, 1, 1], padding="SAME")
    graph.node("Relu", "conv", name="scores")
    path.write_bytes(graph.content())
    return weights[0, 0]


def test_a_graph_of_tensorflow_is_converted_with_its_outputs_and_gears(invoke: Invoke, tmp_path: Path) -> None:
    weights = tensorflow_graph(tmp_path / "net.pb")
    words = [f"--model={tmp_path}/net.pb", "--framework=3", f"--output={tmp_path}/net", "--input_shape=picture:1,-1,-1,3"]
    words += ["--dynamic_image_size=4,6;8,8", "--out_nodes=conv:0;scores:0", "--output_type=scores:0:FP16"]
    assert invoke("atc", *words).exit_code == 0
    session = InferenceSession(f"{tmp_path}/net.om")
    assert [(item.name, item.type) for item in session.get_outputs()] == [("conv:0", "tensor(float)"), ("scores:0", "tensor(float16)")]
    x = np.random.default_rng(4).standard_normal((1, 4, 6, 3)).astype(np.float32)
    conv, scores = session.run(None, {"picture": x})
    np.testing.assert_allclose(conv, x @ weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, np.maximum(x @ weights, 0), rtol=2e-3, atol=1e-3)
    assert "framework_type[TensorFlow]" in invoke("atc", "--mode=6", f"--om={tmp_path}/net.om").stdout


def test_pictures_of_tensorflow_are_converted_by_aipp_with_their_channels_last(invoke: Invoke, tmp_path: Path) -> None:
    weights = tensorflow_graph(tmp_path / "net.pb")
    (tmp_path / "aipp.cfg").write_text(
        "aipp_op { aipp_mode: static input_format: RGB888_U8 mean_chn_0: 10 mean_chn_1: 20 mean_chn_2: 30 var_reci_chn_0: 0.5 }"
    )
    words = [f"--model={tmp_path}/net.pb", "--framework=3", f"--output={tmp_path}/net", "--input_shape=picture:1,4,6,3"]
    assert invoke("atc", *words, f"--insert_op_conf={tmp_path}/aipp.cfg").exit_code == 0
    picture = np.random.default_rng(5).integers(0, 256, (1, 4, 6, 3), np.uint8)
    normal = (picture - np.float32([10, 20, 30])) * np.float32([0.5, 1, 1])
    (scores,) = InferenceSession(f"{tmp_path}/net.om").run(None, {"picture": picture})
    np.testing.assert_allclose(scores, np.maximum(normal @ weights, 0), rtol=1e-4, atol=1e-3)


def test_a_graph_of_tensorflow_is_checked_and_shown_as_json(invoke: Invoke, tmp_path: Path) -> None:
    tensorflow_graph(tmp_path / "net.pb")
    report = tmp_path / "report.json"
    assert invoke("atc", "--mode=3", "--framework=3", f"--model={tmp_path}/net.pb", f"--check_report={report}").exit_code == 0
    assert {row["result"] for row in json.loads(report.read_text())["op"]} == {"success"}
    assert invoke("atc", "--mode=1", "--framework=3", f"--om={tmp_path}/net.pb", f"--json={tmp_path}/net.json").exit_code == 0
    assert "conv" in (tmp_path / "net.json").read_text()


def in_lanes(array: np.ndarray) -> np.ndarray:
    """[N, C, H, W] as fp16 [N, C1, H, W, 16]."""
    batch, channels, height, width = array.shape
    blocks = -(-channels // 16)
    padded = np.zeros((batch, blocks * 16, height, width), np.float16)
    padded[:, :channels] = array
    return padded.reshape(batch, blocks, 16, height, width).transpose(0, 1, 3, 4, 2)


@pytest.mark.parametrize("gears", [(), ("--dynamic_batch_size=1,2",)])
def test_inputs_and_outputs_may_have_sixteen_channels_beside_each_other(invoke: Invoke, tmp_path: Path, gears: tuple[str, ...]) -> None:
    shape = "float[n, 19, 4, 5]"
    text = f'<ir_version: 10, opset_import: ["": 20]> g ({shape} x) => ({shape} y, {shape} z) {{ y = Relu(x) z = Neg(x) }}'
    path = save_model(text, tmp_path / "model.onnx")
    batch = "-1" if gears else "2"
    words = [f"--input_shape=x:{batch},19,4,5", "--input_fp16_nodes=x", "--is_input_adjust_hw_layout=true"]
    status, lines = atc(invoke, path, *words, "--is_output_adjust_hw_layout=true,false", *gears)
    assert status == 0, lines
    session = InferenceSession(f"{tmp_path}/out.om")
    assert [(item.name, item.type) for item in session.get_outputs()] == [("y", "tensor(float16)"), ("z", "tensor(float)")]
    x = np.random.default_rng(1).standard_normal((2, 19, 4, 5)).astype(np.float16)
    y, z = session.run(None, {"x": in_lanes(x)})
    np.testing.assert_array_equal(y, in_lanes(np.maximum(x, 0)))
    np.testing.assert_array_equal(z, -x.astype(np.float32))
    assert read_offline_model(tmp_path / "out.om").metadata["hw_layout"] == ["x", "y"]


def test_layouts_that_cannot_be_are_told(invoke: Invoke, add: Path) -> None:
    for words, told in (
        (["--is_input_adjust_hw_layout=maybe"], "E10005"),
        (["--is_input_adjust_hw_layout=true"], "1 values for 0 input_fp16_nodes"),
        (["--is_output_adjust_hw_layout=true,true"], "2 values for 1 outputs"),
        (["--is_output_adjust_hw_layout=true"], "NC1HWC0 needs four sizes"),
    ):
        result = invoke("atc", f"--model={add}", "--framework=5", f"--output={add.parent}/out", "--input_shape=a:2,4;b:2,4", *words)
        assert result.exit_code != 0
        assert told in result.output
