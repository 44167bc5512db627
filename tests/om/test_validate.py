"""Programs are checked before anything native follows them: no buffer leaves its memory, no name or symbol is unknown."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from anycann.om import codec
from anycann.om.plan import Buffer, HostStep, Location, NativeStep, Program, RegionStep, TensorSpec
from anycann.om.validate import Surroundings, check_program, spec_bytes
from anycann.support.errors import ModelError
from tests.om.models import SYMBOLS, WEIGHTS, program

AROUND = Surroundings(WEIGHTS.nbytes + 64, ("then", "else"), SYMBOLS.keys())
GOOD = program(2, Buffer("constants", 0, WEIGHTS.nbytes))


def with_step(number: int, **changes: object) -> Program:
    step: Any = replace(GOOD.steps[number], **changes)  # type: ignore[arg-type]
    return replace(GOOD, steps=(*GOOD.steps[:number], step, *GOOD.steps[number + 1 :]))


def with_task(**changes: object) -> Program:
    step = GOOD.steps[0]
    assert isinstance(step, NativeStep)
    return with_step(0, tasks=(replace(step.tasks[0], **changes), *step.tasks[1:]))  # type: ignore[arg-type]


def with_argument(buffer: Buffer) -> Program:
    return with_task(arguments=(buffer,))


def with_value(**changes: object) -> Program:
    return replace(GOOD, values={**GOOD.values, "h": replace(GOOD.values["h"], **changes)})  # type: ignore[arg-type]


def test_a_good_program_passes():
    check_program(GOOD, AROUND, "file")
    check_program(GOOD, Surroundings(WEIGHTS.nbytes + 64, ("then", "else")), "file")


ARENA = GOOD.arena_bytes
CASES: dict[str, tuple[Callable[[], Program], str]] = {
    "arena": (lambda: with_argument(Buffer("arena", ARENA - 64, 65)), rf"kernel add_1, argument 0: .* leaves its space; .* up to {ARENA}"),
    "arena offset": (lambda: with_argument(Buffer("arena", 1 << 62, 0)), "leaves its space"),
    "negative": (lambda: with_argument(Buffer("arena", -64, 64)), "leaves its space"),
    "negative size": (lambda: with_argument(Buffer("arena", 64, -1)), "leaves its space"),
    "constants": (lambda: with_argument(Buffer("constants", 64, WEIGHTS.nbytes)), f"leaves its space; .* up to {WEIGHTS.nbytes}"),
    "input": (lambda: with_argument(Buffer("input", 0, 801)), "leaves its space; .* up to 800"),
    "input number": (lambda: with_argument(Buffer("input", 0, 4, 1)), "is input number 1; accepted: 0 to 0"),
    "output": (lambda: with_argument(Buffer("output", 64, 240)), "leaves its space; .* up to 240"),
    "negative number": (lambda: with_argument(Buffer("output", 0, 4, -1)), "is output number -1"),
    "arena size": (lambda: replace(GOOD, arena_bytes=1 << 60), "arena_bytes is .*; accepted: up to"),
    "scratch": (lambda: with_task(scratch_bytes=1 << 60), "scratch bytes; accepted: up to"),
    "tasks": (lambda: with_task(tasks=1 << 60), "tasks and .* accepted: up to"),
    "symbol": (lambda: with_task(symbol="system"), r"steps\[0\], kernel system is not in the model's machine code; .* 2 symbols"),
    "task output": (lambda: with_task(outputs=("z",)), r"steps\[0\]: 'z' is not known there"),
    "host input": (lambda: with_step(1, inputs=("r",)), r"steps\[1\], node 'odd' \(Unique\): 'r' is not known there; accepted: an input"),
    "host capture": (lambda: with_step(1, captures=("r",)), "'r' is not known there"),
    "region": (lambda: with_step(2, regions=("then", "otherwise")), "names region 'otherwise'; accepted: else, then"),
    "region count": (lambda: with_step(2, regions=("then",), captures=((),)), "has 1 regions; accepted: 2"),
    "captures": (lambda: with_step(2, captures=((),)), "has captures for 1 of its 2 regions"),
    "captured": (lambda: with_step(2, captures=(("q",), ())), "if 'choice': 'q' is not known"),
    "condition": (lambda: with_step(2, inputs=("q",)), "'q' is not known"),
    "program output": (lambda: replace(GOOD, outputs=(TensorSpec("q", "float32", (2, 30)),)), "outputs: 'q' is not known"),
    "value too small": (lambda: with_value(buffer=Buffer("arena", 0, 799)), "value 'h' needs 800 bytes"),
    "value outside": (lambda: with_value(buffer=Buffer("arena", 128, 800)), "value 'h': .* leaves its space"),
    "value layout": (lambda: with_value(layout="CHWN"), "value 'h' has layout 'CHWN'; accepted: ND, NC1HWC0, NHWC"),
    "value open": (lambda: with_value(spec=TensorSpec("h", "float32", ("n",))), "accepted: a numeric type and a static shape"),
    "value type": (lambda: with_value(spec=TensorSpec("h", "object", (1,))), "accepted: a numeric type and a static shape"),
    "open input": (lambda: replace(GOOD, inputs=(TensorSpec("x", "float32", ("n", 100)),)), "whose size is open"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_out_of_bounds_or_unknown_is_refused(case):
    make, message = CASES[case]
    with pytest.raises(ModelError, match=f"^file: .*{message}" if not message.startswith("arena_bytes") else message):
        check_program(make(), AROUND, "file")


def test_without_any_constants_none_may_be_read():
    for nbytes in (0, 64):
        with pytest.raises(ModelError, match="up to 0"):
            check_program(with_argument(Buffer("constants", 0, 1)), Surroundings(nbytes, ("then", "else")), "file")


def test_an_absent_input_and_results_of_earlier_steps_are_known():
    steps = (HostStep(b"", 26, "a", "A", ("x", ""), ("u", "")), HostStep(b"", 26, "b", "B", ("u",), ("y",)))
    check_program(replace(GOOD, steps=steps), AROUND, "file")
    loop = RegionStep("loop", "l", ("then",), ("", "x"), ((),), ("v",))
    check_program(replace(GOOD, steps=(loop,), outputs=(TensorSpec("v", "object", ()),), values={}), AROUND, "file")


def test_an_input_that_no_kernel_touches_may_be_anything():
    made = Program((TensorSpec("s", "object", (None,)),), (), 0, (HostStep(b"", 26, "a", "A", ("s",), ("u",)),), {})
    check_program(made, Surroundings(0), "file")


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [
        ("float32", 24), ("bfloat16", 12), ("float8_e4m3fn", 6), ("int4", 6), ("bool", 6), ("complex128", 96), ("object", None),
        ("str", None), ("datetime64[s]", None), ("float", None), ("f4", None), ("(2,3)f4", None), ("finfo", None), ("", None), ("U4", None),
    ],
)  # fmt: skip
def test_the_size_of_a_tensor_comes_from_its_type_and_shape(dtype, nbytes):
    assert spec_bytes(TensorSpec("x", dtype, (2, 3))) == nbytes
    assert spec_bytes(TensorSpec("x", dtype, (2, None))) is None
    assert spec_bytes(TensorSpec("x", dtype, ("n",))) is None


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for key, item in items for found in leaves(item, (*path, key))]
    return [path]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_a_number_or_a_name_gets_a_kernel_out_of_bounds(data):
    """A hostile plan is refused, or every pointer it gives to a kernel lies inside memory that is there."""
    made = codec.encode(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(leaves(made)))
        holder = made
        for key in path:
            holder = holder[key]
        numbers = st.integers(-2, 20000) | st.integers(-(2**70), 2**70)
        words = st.text(max_size=3) | st.sampled_from(["arena", "constants", "input", "output", "int8"])
        holder[last] = data.draw(numbers | words | st.none())
    try:
        changed = codec.decode(Program, made, "file")
        check_program(changed, AROUND, "file")
    except ModelError:
        return
    spaces = {"arena": (changed.arena_bytes,), "constants": (WEIGHTS.nbytes,)}
    spaces |= {"input": tuple(map(spec_bytes, changed.inputs)), "output": tuple(map(spec_bytes, changed.outputs))}
    tasks = [task for step in changed.steps if isinstance(step, NativeStep) for task in step.tasks]
    buffers = [buffer for task in tasks for buffer in task.arguments]
    located: list[Location] = list(changed.values.values())
    for buffer in [*buffers, *(location.buffer for location in located)]:
        size = spaces[buffer.space][buffer.index if buffer.space in ("input", "output") else 0]
        assert 0 <= buffer.offset_bytes <= buffer.offset_bytes + buffer.nbytes <= size
    assert all(spec_bytes(location.spec) <= location.buffer.nbytes for location in located)
    assert {task.symbol for task in tasks} <= SYMBOLS.keys()
