"""The built-in knowledge bank: for every processor with such cores, behind what the user has tuned, never a wrong kernel."""

from __future__ import annotations

from dataclasses import fields, replace
import json
from pathlib import Path
from typing import Any

import pytest

from anycann.codegen.kernel_cache import KernelCache, compile_kernels
from anycann.codegen.kernels.attention_space import AttentionSpace
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import AlgorithmSpace, ConvolutionSpace, PlanesSpace, WinogradSpace
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.matmul_space import MatmulSpace
from anycann.codegen.kernels.winograd_words_tile import WordWinogradSpace
from anycann.codegen.space import Choices
from anycann.target.target import NAMED, PROCESSORS, Target, processor
from anycann.te import dtypes
from anycann.tuning import bank as banks
from anycann.tuning.bank import BUILT_IN, Bank, open_bank
from anycann.tuning.bank_files import OF_CORES, Entry, keep
from anycann.tuning.identity import digest
from anycann.tuning.measuring import Job, Measurer
from anycann.tuning.operands import inputs_of, outputs_of
from anycann.tuning.tuner import candidate_of
from tests.tuning.cases import convolution_task

TARGET = NAMED["avx2"]
SPACE = convolution_task(target=TARGET).space
POINT = {"columns": 3, "blocks": 2, "unroll": 2, "merge": 0, "blocks_inner": 1, "depth": 0, "images": 0}
FAMILIES = {
    space.family: space
    for space in (ConvolutionSpace, WinogradSpace, PlanesSpace, DotSpace, WordWinogradSpace, MatmulSpace, AttentionSpace, AlgorithmSpace)
}


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


FILES = {path: json.loads(path.read_text()) for path in sorted(BUILT_IN.rglob("*.json"))}
SHIPPED = [(path, key, entry) for path, content in FILES.items() for key, entries in content.items() for entry in entries]


def space_of(info: dict[str, Any]) -> ConvolutionSpace:
    """The space that an entry of a convolution was measured in."""
    sizes = {f.name: tuple(v) if isinstance(v := info[f.name], list) else v for f in fields(ConvolutionShape)}
    target = NAMED[info["target"]["name"]]
    return ConvolutionSpace(ConvolutionShape(**{**sizes, "dtype": dtypes.BY_NAME[info["dtype"]]}), target, bool(info["blocked_input"]))


def test_what_is_built_in_is_of_these_generators_and_was_measured_to_be_faster() -> None:
    for path, key, kept in SHIPPED:
        info = kept["info_dict"]
        assert digest(info) == key
        assert info["version"] == FAMILIES[info["op_type"]].version, f"{path}: of an older generator; measure it again"
        assert info["target"]["name"] in NAMED
        assert path.name == f"{info['target']['name']}_{kept['core_num']}_AiCore_{info['op_type']}.json"
        assert kept["performance_after_tune(us)"] <= 0.95 * kept["performance_before_tune(us)"]
        assert kept["caches"]["l1_bytes"] >= 1024


def test_what_is_built_in_is_found_and_is_not_the_default() -> None:
    for _, _, entry in SHIPPED:
        if entry["info_dict"]["op_type"] == "Conv":
            space = space_of(entry["info_dict"])
            bank = Bank([], space.target, BUILT_IN)
            assert bank.find(space) == entry["knowledge"] != space.point(space.default())
            assert bank.find(replace(space, problem=replace(space.problem, batch=7))) is None


@pytest.mark.skipif(processor().lanes < 8, reason="the processor has no AVX2")
def test_a_kernel_of_a_built_in_entry_computes_what_the_default_does(tmp_path: Path) -> None:
    task, folder = convolution_task(target=TARGET), filled(tmp_path / "built_in")
    points = [task.default, Bank([], TARGET, folder).find(task.space)]
    generated = [task.generate(point) for point in points if point is not None]
    code = compile_kernels({g.kernel.symbol: g.kernel.ir for g in generated}, TARGET, 1, cache=KernelCache(tmp_path))
    inputs, outputs = inputs_of(task.recipe, task.constants), outputs_of(task.recipe)
    job = Job(tuple(candidate_of(g, code) for g in generated), inputs, outputs, TARGET, threads=1, rounds=1)
    with Measurer() as measurer:
        timings = measurer.measure(job)
    assert len(code) == 2
    assert [timing.problem for timing in timings] == ["", ""]
