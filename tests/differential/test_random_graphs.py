"""Random small graphs: node by node (raw), optimised, and by the reference. What was found once is replayed from corpus/."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.passes.pipeline import switches
from anycann.passes.rules import RULES
from anycann.support.errors import AnyCANNError
from tests.differential.recipes import AS_THEY_ARE, FREE, Builder, Case, Line, build, parse_recipe, usable

CORPUS = Path(__file__).parent / "corpus"
RAW = SessionOptions(fuse=False, poison=True, switched_off=frozenset({*switches(), *(rule.name for rule in RULES)}))
OPTIMISED = SessionOptions(poison=True)
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYCANN_CACHE_DIR", str(folder))
        patch.setenv("ANYCANN_VERIFY", "1")
        yield


@st.composite
def samples(draw: st.DrawFn, builder: Builder) -> Line:
    """A sample, reading earlier values where some fit."""
    name = draw(st.sampled_from(sorted(usable())))
    number = draw(st.integers(0, len(usable()[name]) - 1))
    sample = usable()[name][number]
    glued: list[tuple[int, int]] = []
    for operand, array in enumerate(sample.operands):
        if array is None or operand in sample.constant:
            continue
        fitting = [value for value in range(len(builder.values)) if builder.fits(value, array)]
        if fitting and (not glued or draw(st.booleans())):
            glued.append((operand, draw(st.sampled_from(fitting[-3:]))))
    return Line(name, number, tuple(glued))


@st.composite
def free_lines(draw: st.DrawFn, builder: Builder) -> Line | None:
    """An operator on earlier values as they are; None if none fit."""
    name = draw(st.sampled_from(sorted(FREE)))
    choices = itertools.product(range(max(0, len(builder.values) - 4), len(builder.values)), repeat=FREE[name][0])
    fitting = [values for values in choices if builder.fit_together(name, values)]
    return Line(name, AS_THEY_ARE, tuple(enumerate(draw(st.sampled_from(fitting))))) if fitting else None


@st.composite
def recipes(draw: st.DrawFn, longest: int) -> list[Line]:
    """Samples, each reading earlier values where some fit, and between them operators on the values as they are."""
    builder = Builder()
    for _ in range(draw(st.integers(2, longest))):
        line = draw(free_lines(builder)) if builder.values and draw(st.integers(0, 2)) else draw(samples(builder))
        if line is None:
            continue
        with contextlib.suppress(AnyCANNError):  # the reference does not take every sample
            builder.add(line)
    return builder.lines


def faults(case: Case) -> list[str]:
    """What a run of the case gives otherwise than the reference, in words."""
    found = []
    for how, options in (("raw", RAW), ("optimised", OPTIMISED)):
        results = InferenceSession(case.model, options).run(None, case.feeds)
        for (name, want), got in zip(case.values.items(), results, strict=True):
            fault = difference(got, want)
            if fault:
                found.append(f"{how}: {name}: {fault}")
    return found


def difference(got: np.ndarray, want: np.ndarray) -> str:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if str(want.dtype) not in TOLERANCE:
        return "" if np.array_equal(got, want) else "other elements"
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.isclose(a, b, rtol=0, atol=TOLERANCE[str(want.dtype)] * scale) | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return ""
    return f"{wrong.sum()} of {wrong.size} elements differ, the first: {got[wrong][0]} instead of {want[wrong][0]}"


def check(lines: list[Line]) -> None:
    text = "\n".join(map(str, lines))
    try:
        found = faults(build(lines))
    except Exception as error:
        raise AssertionError(f"this recipe fails; put it into tests/differential/corpus:\n{text}") from error
    assert not found, f"this recipe fails; put it into tests/differential/corpus:\n{text}\n" + "\n".join(found)


COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=25, derandomize=True, **COMMON)
@given(recipes(7))
def test_raw_optimised_and_reference_agree_on_random_graphs(lines: list[Line]) -> None:
    check(lines)


@pytest.mark.large
@settings(max_examples=1500, print_blob=True, **COMMON)
@given(recipes(16))
def test_raw_optimised_and_reference_agree_on_many_random_graphs(lines: list[Line]) -> None:
    check(lines)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.txt")), ids=lambda path: path.stem)
def test_found_cases_stay_right(path: Path) -> None:
    check(parse_recipe(path.read_text()))


def test_a_recipe_is_its_text() -> None:
    line = Line("com.microsoft.Gelu", 3, ((0, 2), (1, 0)))
    assert parse_recipe(f"# found in May\n{line}\n") == [line]


def test_a_wrong_result_is_noticed() -> None:
    case = build([Line("Relu", 2)])
    case.values = {name: value + 1 for name, value in case.values.items()}
    assert [fault.split(":")[0] for fault in faults(case)] == ["raw", "optimised"]
