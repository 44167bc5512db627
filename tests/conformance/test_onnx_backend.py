"""The backend suite of ONNX, whole: what is left out stands in excluded.txt with its reason."""

from __future__ import annotations

import os
from pathlib import Path

from corrections import CORRECTIONS
from onnx_cases import Outcome, all_cases
from onnx_processes import run_in_processes
import pytest

EXCLUDED = Path(__file__).with_name("excluded.txt")
LEAST_PASSED = 1810  # of 1827: 9 need a download, 6 are random (excluded.txt)
OTHER_VALUES = "Not equal to tolerance"  # of numpy.testing: shape and dtype were as expected
LEAST_NATIVE = 700  # node cases whose every step is generated code


def excluded_cases() -> dict[str, str]:
    """Case -> reason."""
    lines = [line for line in EXCLUDED.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in (line.partition("#") for line in lines)}


def random_cases() -> set[str]:
    """Excluded cases whose outputs are drawn: now and then one draws what is expected."""
    return {name for name, reason in excluded_cases().items() if reason.startswith("random numbers")}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    local = [name for name, case in all_cases().items() if case.model_dir]
    return run_in_processes(local, processes=min(4, os.cpu_count() or 1))


def test_every_excluded_case_exists_and_has_a_reason() -> None:
    excluded = excluded_cases()
    assert random_cases()
    assert [name for name in excluded if name not in all_cases()] == []
    assert [name for name, reason in excluded.items() if not reason] == []


def test_every_case_that_needs_a_download_is_excluded() -> None:
    assert [name for name, case in all_cases().items() if not case.model_dir and name not in excluded_cases()] == []


def test_every_corrected_case_exists() -> None:
    assert [name for name in CORRECTIONS if f"node/{name}" not in all_cases()] == []


@pytest.mark.slow
def test_every_case_that_is_not_excluded_passes(outcomes: dict[str, Outcome]) -> None:
    excluded = excluded_cases()
    failed = [f"{outcome.name}: {outcome.error}" for outcome in outcomes.values() if outcome.error and outcome.name not in excluded]
    assert not failed, f"{len(failed)} cases fail:\n" + "\n".join(sorted(failed))


@pytest.mark.slow
def test_random_cases_differ_in_their_values_at_most(outcomes: dict[str, Outcome]) -> None:
    wrong = {name: outcomes[name].error for name in random_cases() if outcomes[name].error and OTHER_VALUES not in outcomes[name].error}
    assert not wrong, f"these do not come to an output of the expected shape and dtype: {wrong}"


@pytest.mark.slow
def test_no_excluded_case_passes(outcomes: dict[str, Outcome]) -> None:
    judged = set(excluded_cases()) - random_cases()
    passing = [name for name in judged if name in outcomes and not outcomes[name].error]
    assert not passing, f"these pass now; take them out of {EXCLUDED.name}: {passing}"


@pytest.mark.slow
def test_enough_cases_pass_and_enough_are_native(outcomes: dict[str, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    passed = [outcome for outcome in outcomes.values() if not outcome.error]
    native = [outcome for outcome in passed if outcome.native and outcome.name.startswith("node/")]
    with capsys.disabled():
        print(f"\nONNX backend suite: {len(passed)} of {len(all_cases())} cases pass ({len(CORRECTIONS)} with the data of onnx 1.22);")
        print(f"{len(native)} node cases are native in every step")
    assert len(passed) >= LEAST_PASSED
    assert len(native) >= LEAST_NATIVE
