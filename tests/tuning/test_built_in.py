"""The built-in knowledge bank: for every processor with such cores, behind what the user has tuned, never a wrong kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
import json
from pathlib import Path
from typing import Any

import pytest

from anycann.aoe.model_tasks import model_tasks
from anycann.codegen.kernel_cache import KernelCache, compile_kernels
from anycann.codegen.kernels.convolution_space import ConvolutionSpace
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.space import Choices, Point
from anycann.compiler import CompileOptions, convert_model
from anycann.frontends.onnx.load import load_model
from anycann.om.plan import NativeStep
from anycann.target.target import NAMED, PROCESSORS, Target, processor
from anycann.te import dtypes
from anycann.tuning import bank as banks
from anycann.tuning import bank_files
from anycann.tuning.bank import BUILT_IN, Bank, open_bank
from anycann.tuning.bank_files import OF_CORES, Entry, keep
from anycann.tuning.measuring import Job, Measurer
from anycann.tuning.operands import inputs_of, outputs_of
from anycann.tuning.task import TuningTask
from anycann.tuning.tuner import candidate_of
from tests.tools.models import matmul_model
from tests.tuning.built_in_faults import faults, space_of
from tests.tuning.cases import attention_task, convolution_task, convolution_task_of, matmul_task

TARGET = NAMED["avx2"]
SPACE = convolution_task(target=TARGET).space
POINT = {"columns": 3, "blocks": 2, "unroll": 2, "merge": 0, "blocks_inner": 1, "depth": 0, "images": 0}
WINOGRAD = convolution_task(kernel=3, channels=64, target=TARGET).space
PRODUCT, ATTENTION = matmul_task(target=TARGET).space, attention_task(target=TARGET).space


def filled(folder: Path, **point: int) -> Path:
    keep([Entry(SPACE, {**POINT, **point}, 2e-3, 1e-3, 1)], folder, OF_CORES)
    return folder


def on(target: Target, folder: Path) -> dict[str, int] | None:
    """What the bank says for the problem on another target."""
    found = Bank([], target, folder).find(replace(SPACE, target=target))
    return None if found is None else dict(found)


def test_an_entry_serves_every_processor_with_such_cores(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    assert on(TARGET, folder) == POINT
    assert on(replace(TARGET, name="host", cpu="alderlake", features=TARGET.features + ",+avxvnni", l2_bytes=2 << 20), folder) == POINT


def test_problems_of_other_families_cost_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, keys = Bank([], TARGET, filled(tmp_path)), []
    assert len(bank) == 1
    monkeypatch.setattr(bank_files, "digest", lambda facts: keys.append(facts["op_type"]))
    assert bank.find(PRODUCT) is bank.find(SPACE) is None
    assert keys == ["Conv"]


@pytest.mark.parametrize(
    "other",
    [
        replace(TARGET, l1_bytes=TARGET.l1_bytes // 2),
        replace(TARGET, l2_bytes=TARGET.l2_bytes - 1),
        replace(TARGET, features=TARGET.features.replace("+fma", "-fma")),
        NAMED["avx512"],
        NAMED["sse"],
    ],
    ids=["smaller L1", "smaller L2", "no FMA", "avx512", "sse"],
)
def test_an_entry_is_not_for_smaller_caches_and_other_cores(tmp_path: Path, other: Target) -> None:
    assert on(other, filled(tmp_path)) is None


def test_cores_that_halve_wide_vectors_are_others() -> None:
    wide, halved = NAMED["avx512"], PROCESSORS["znver4"]
    assert OF_CORES.key(replace(SPACE, target=wide)) != OF_CORES.key(replace(SPACE, target=halved))


def test_instructions_for_bytes_tell_kernels_of_bytes_apart_and_no_others() -> None:
    more = replace(TARGET, features=TARGET.features + ",+avxvnni")
    bytes_ = DotSpace(replace(SPACE.problem, dtype=dtypes.int8), TARGET)
    assert OF_CORES.key(SPACE) == OF_CORES.key(replace(SPACE, target=more))
    assert OF_CORES.key(bytes_) != OF_CORES.key(replace(bytes_, target=more))


def test_a_generator_of_another_version_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled(tmp_path)
    monkeypatch.setattr(ConvolutionSpace, "version", ConvolutionSpace.version + 1)
    assert on(TARGET, folder) is None


def test_compiling_asks_the_users_bank_first_and_then_the_built_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banks, "BUILT_IN", filled(tmp_path / "built_in"))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "custom"))
    monkeypatch.setenv("ENABLE_TUNE_BANK", "True")
    assert Choices(tuned=open_bank(TARGET)).tile(SPACE).columns == 3
    keep([Entry(SPACE, {**POINT, "columns": 2}, 2e-3, 1e-3, 1)], tmp_path / "custom")
    assert Choices(tuned=open_bank(TARGET)).tile(SPACE).columns == 2
    monkeypatch.setenv("ENABLE_TUNE_BANK", "False")
    assert Choices(tuned=open_bank(TARGET)).tile(SPACE) == SPACE.default()


def kernels(model: Path, target: Target) -> set[str]:
    """The symbols of a model's kernels, which tell what they compute how."""
    conversion = convert_model(load_model(model), CompileOptions("product", input_shapes={"x": (64, 96)}, target=target))
    steps = [step for program in conversion.model.programs.values() for step in program.steps]
    return {task.symbol for step in steps if isinstance(step, NativeStep) for task in step.tasks}


@pytest.mark.parametrize(("name", "is_for_it"), [("avx2", True), ("avx512", False), ("sse", False)])
def test_a_model_is_compiled_with_a_built_in_entry_on_such_processors_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_for_it: bool
) -> None:
    model, target = matmul_model(tmp_path / "product.onnx", 96, 80), NAMED[name]
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "custom"))
    monkeypatch.setenv("ENABLE_TUNE_BANK", "True")
    monkeypatch.setattr(banks, "BUILT_IN", tmp_path / "built_in")
    unasked = kernels(model, target)
    (task,) = model_tasks(load_model(model), CompileOptions(input_shapes={"x": (64, 96)}, target=TARGET)).tasks.values()
    keep([Entry(task.space, {**task.default, "rows": 3, "vectors": 1}, 2e-3, 1e-3, 1)], tmp_path / "filled", OF_CORES)
    monkeypatch.setattr(banks, "BUILT_IN", tmp_path / "filled")
    assert (kernels(model, target) != unasked) is is_for_it
    monkeypatch.setenv("ENABLE_TUNE_BANK", "False")
    assert kernels(model, target) == unasked


def test_a_wrong_point_is_said_once_and_what_comes_behind_it_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    custom, built_in = tmp_path / "custom", filled(tmp_path / "built_in")
    keep([Entry(SPACE, {**POINT, "columns": 1000}, 2e-3, 1e-3, 1)], custom)
    bank = Bank([custom], TARGET, built_in)
    assert bank.find(SPACE) == POINT
    assert bank.find(SPACE) == POINT
    assert caplog.text.count("which is not among the choices; it is not used") == 1


def test_a_wrong_built_in_entry_is_said_and_the_estimate_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Choices(tuned=Bank([], TARGET, filled(tmp_path, columns=1000))).tile(SPACE) == SPACE.default()
    assert "(Conv) says" in caplog.text


def test_a_built_in_file_that_was_changed_by_hand_is_said_and_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = filled(tmp_path).rglob("*.json")
    path.write_text(path.read_text().replace('"in_channels": 32', '"in_channels": 64'))
    assert on(TARGET, tmp_path) is None
    assert "1 of 1 entries are damaged or foreign" in caplog.text


def test_what_is_built_in_has_no_faults() -> None:
    assert faults(BUILT_IN) == []


# Entries of each kind of problem: its sizes are read from the file again, and its point is another one than the default.
OTHERS = {
    "Conv": (SPACE, POINT),
    "ConvWinograd": (WINOGRAD, {**WINOGRAD.point(WINOGRAD.default()), "columns": 1, "unroll": 1}),
    "MatMul": (PRODUCT, {**PRODUCT.point(PRODUCT.default()), "rows": 1}),
    "Attention": (ATTENTION, {**ATTENTION.point(ATTENTION.default()), "keys": 1}),
}


@pytest.mark.parametrize("family", OTHERS)
def test_a_bank_that_may_be_built_in_has_no_faults(tmp_path: Path, family: str) -> None:
    space, point = OTHERS[family]
    keep([Entry(space, point, 2e-3, 1e-3, 1)], tmp_path, OF_CORES)
    assert faults(tmp_path) == []
    assert Bank([], TARGET, tmp_path).find(space) == point


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda entry: entry["info_dict"].update(version=0), "another version"),
        (lambda entry: entry["info_dict"].update(in_channels=64), "its key is of something else"),
        (lambda entry: entry["info_dict"]["target"].update(name="avx512"), "its key is of something else"),
        (lambda entry: entry["info_dict"].update(op_type="Nest"), "found by the text"),
        (lambda entry: entry.update(core_num=2), "another file"),
        (lambda entry: entry["knowledge"].update(columns=1000), "not in the space"),
        (lambda entry: entry["knowledge"].pop("columns"), "not in the space"),
        (lambda entry: entry.update(knowledge=dict(SPACE.point(SPACE.default()))), "is the default"),
        (lambda entry: entry["caches"].update(l2_bytes=1 << 30), "does not find it"),
        (lambda entry: entry.update({"performance_after_tune(us)": 1990.0}), "not measured to be faster"),
        (lambda entry: entry["caches"].update(l1_bytes=0), "how large the caches"),
    ],
)
def test_a_fault_of_a_built_in_bank_is_found(tmp_path: Path, change: Callable[[dict[str, Any]], object], fault: str) -> None:
    (path,) = filled(tmp_path).rglob("*.json")
    content = json.loads(path.read_text())
    for entries in content.values():
        change(entries[0])
    path.write_text(json.dumps(content))
    (found,) = faults(tmp_path)
    assert fault in found


@pytest.mark.skipif(processor().lanes < 8, reason="the processor has no AVX2")
def test_every_convolution_that_is_built_in_is_found_and_computes_what_the_default_does(tmp_path: Path) -> None:
    entries = [entry for path in BUILT_IN.rglob("*_Conv.json") for (entry,) in json.loads(path.read_text()).values()]
    assert entries
    for entry in entries:
        task = convolution_task_of(space_of(entry["info_dict"]).problem, TARGET)
        assert Bank([], TARGET, BUILT_IN).find(task.space) == entry["knowledge"]
        assert agrees(task, entry["knowledge"], tmp_path)


@pytest.mark.skipif(processor().lanes < 8, reason="the processor has no AVX2")
def test_a_kernel_of_a_built_in_entry_computes_what_the_default_does(tmp_path: Path) -> None:
    task, folder = convolution_task(target=TARGET), filled(tmp_path / "built_in")
    point = Bank([], TARGET, folder).find(task.space)
    assert point is not None
    assert agrees(task, point, tmp_path)


def agrees(task: TuningTask, point: Point, folder: Path) -> bool:
    """Whether the kernel of a point is another one than the default, with the same results."""
    generated = [task.generate(each) for each in (task.default, point)]
    code = compile_kernels({g.kernel.symbol: g.kernel.ir for g in generated}, TARGET, 1, cache=KernelCache(folder))
    inputs, outputs = inputs_of(task.recipe, task.constants), outputs_of(task.recipe)
    job = Job(tuple(candidate_of(g, code) for g in generated), inputs, outputs, TARGET, threads=1, rounds=1)
    with Measurer() as measurer:
        timings = measurer.measure(job)
    return len(code) == 2 and [timing.problem for timing in timings] == ["", ""]
