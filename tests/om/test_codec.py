"""Dataclasses become JSON and come back equal; everything else is refused with its place."""

from dataclasses import dataclass
import json
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from anycann.om import codec
from anycann.om.plan import Buffer, HostStep, Location, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.support.errors import InternalError, ModelError
from tests.om.models import small_model

names = st.text(max_size=8)
counts = st.integers(0, 2**63 - 1)


def tuples(items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=3).map(tuple)


specs = st.builds(TensorSpec, names, st.sampled_from(["float32", "object"]), tuples(counts | names | st.none()))
buffers = st.builds(Buffer, st.sampled_from(["arena", "constants", "input", "output"]), counts, counts, counts)
tasks = st.builds(Task, names, tuples(buffers), counts, counts, tuples(names), tuples(names), tuples(names), counts)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names | st.binary(max_size=4)
attributes = st.recursive(plain, lambda inner: tuples(inner) | st.dictionaries(names, inner, max_size=3), max_leaves=6)
steps = (
    st.builds(NativeStep, tuples(tasks))
    | st.builds(HostStep, st.binary(max_size=5), counts, names, names, tuples(names), tuples(names), tuples(names))
    | st.builds(
        RegionStep,
        st.sampled_from(["deferred", "if", "loop", "scan"]),
        names,
        tuples(names),
        tuples(names),
        tuples(tuples(names)),
        tuples(names),
        st.dictionaries(names, attributes, max_size=3),
    )
)
locations = st.builds(Location, specs, buffers, st.sampled_from(["ND", "NC1HWC0"]))
programs = st.builds(Program, tuples(specs), tuples(specs), counts, tuples(steps), st.dictionaries(names, locations, max_size=3))


@settings(max_examples=150, deadline=None)
@given(programs)
def test_every_program_comes_back_equal(program):
    data = codec.to_json(program)
    assert codec.from_json(Program, data, "file") == program
    assert codec.to_json(codec.from_json(Program, data, "file")) == data


def test_defaults_are_left_out_and_a_union_names_its_class():
    task = Task("f", (Buffer("arena", 64, 8),), 1, 0, (), (), ("y",))
    program = Program((), (), 128, (NativeStep((task,)),), {})
    assert codec.encode(program)["steps"] == [
        {
            "class": "NativeStep",
            "tasks": [
                {
                    "symbol": "f",
                    "arguments": [{"space": "arena", "offset_bytes": 64, "nbytes": 8}],
                    "tasks": 1,
                    "scratch_bytes": 0,
                    "nodes": [],
                    "op_types": [],
                    "outputs": ["y"],
                }
            ],
        }
    ]


BUFFER = {"space": "arena", "offset_bytes": 64, "nbytes": 8}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nbytes": -5}, r"file: Buffer.nbytes is -5; accepted: a whole number from 0 to 9223372036854775807"),
        ({"nbytes": 1 << 63}, r"Buffer.nbytes is 9223372036854775808"),
        ({"nbytes": True}, r"Buffer.nbytes is True"),
        ({"nbytes": 8.0}, r"Buffer.nbytes is 8.0"),
        ({"nbytes": "8"}, r"Buffer.nbytes is '8'"),
        ({"nbytes": None}, r"Buffer.nbytes is None"),
        ({"space": "moon"}, r"Buffer.space is 'moon'; accepted: arena, constants, input, output"),
        ({"space": []}, r"Buffer.space is \[\]"),
        ({"colour": 1}, r"Buffer is an object with 'colour'; accepted: space, offset_bytes, nbytes, index"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place_and_what_is_accepted(change, message):
    with pytest.raises(ModelError, match=message):
        codec.decode(Buffer, {**BUFFER, **change}, "file")


def test_the_place_leads_through_arrays_objects_and_classes():
    made = codec.encode(small_model().programs["float32[1,100]"])
    made["steps"][0]["tasks"][1]["arguments"][0]["nbytes"] = "many"
    with pytest.raises(ModelError, match=r"file: Program.steps\[0\].tasks\[1\].arguments\[0\].nbytes is 'many'"):
        codec.decode(Program, made, "file")
    made = codec.encode(small_model().programs["float32[1,100]"])
    made["values"]["h"]["spec"]["shape"][1] = 2.5
    with pytest.raises(ModelError, match=r"Program.values\['h'\].spec.shape\[1\] is 2.5; accepted: int, str, NoneType"):
        codec.decode(Program, made, "file")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"class": "Shell"}, r"steps\[0\] is an object of class 'Shell'; accepted: NativeStep, HostStep, RegionStep"),
        ({"tasks": []}, r"steps\[0\] is an object of class None"),
        ({"class": ["NativeStep"]}, r"of class \['NativeStep'\]"),
        ([], r"steps\[0\] is \[\]"),
        ({"class": "NativeStep"}, r"steps\[0\] is without tasks"),
        ({"class": "NativeStep", "tasks": {}}, r"steps\[0\].tasks is {}; accepted: an array"),
    ],
)
def test_a_step_of_no_known_class_is_refused(step, message):
    with pytest.raises(ModelError, match=message):
        codec.decode(Program, {"inputs": [], "outputs": [], "arena_bytes": 0, "steps": [step], "values": {}}, "file")


@pytest.mark.parametrize("value", ["?", "YQ", "YQ=\n", "ÿÿ==", 5, None])
def test_bytes_that_are_no_base64_are_refused(value):
    host = codec.encode(HostStep(b"a", 1, "n", "o", (), ()))
    with pytest.raises(ModelError, match=r"HostStep.node is .*; accepted: bytes in base64"):
        codec.decode(HostStep, {**host, "node": value}, "file")


@pytest.mark.parametrize("value", [{}, {"bytes": 1}, {"float": "1"}, {"dict": []}, {"other": 1}, {"bytes": "YQ==", "dict": {}}])
def test_an_attribute_of_no_known_form_is_refused(value):
    region = codec.encode(RegionStep("if", "n", (), (), (), ()))
    with pytest.raises(ModelError, match=r"RegionStep.attributes\['a'\] is"):
        codec.decode(RegionStep, {**region, "attributes": {"a": value}}, "file")


def test_nesting_without_end_is_refused():
    front = b'{"kind":"if","name":"","regions":[],"inputs":[],"captures":[],"outputs":[],"attributes":{"a":'
    with pytest.raises(ModelError, match=r"too deep|is no JSON"):
        codec.from_json(RegionStep, front + b"[" * 90000 + b"]" * 90000 + b"}}", "file")


def test_what_json_cannot_hold_is_a_fault_of_the_writer():
    for value in ({1: 2}, {1, 2}, object(), float("nan")):
        with pytest.raises(InternalError, match="can't be written as JSON"):
            codec.to_json(value)


def test_a_field_of_a_type_the_codec_does_not_know_is_found_at_once():
    @dataclass(frozen=True)
    class Odd:
        value: complex

    with pytest.raises(InternalError, match=r"add them to om/decoders.py"):
        codec.decode(Odd, {}, "file")


@dataclass(frozen=True)
class Later:
    """A class that got `extra` after files had been written."""

    name: str
    ratio: float
    extra: bool = True
    mode: Literal["a", "b"] = "a"


def test_a_field_added_later_has_its_default_in_older_files():
    assert codec.from_json(Later, b'{"name":"n","ratio":1}', "file") == Later("n", 1.0)
    assert codec.from_json(Later, codec.to_json(Later("n", 0.5, False, "b")), "file") == Later("n", 0.5, False, "b")
    with pytest.raises(ModelError, match=r"Later.extra is 0; accepted: true or false"):
        codec.from_json(Later, b'{"name":"n","ratio":1,"extra":0}', "file")
    with pytest.raises(ModelError, match=r"Later.ratio is inf; accepted: a finite number"):
        codec.from_json(Later, b'{"name":"n","ratio":1e999}', "file")


def test_text_of_any_kind_is_kept():
    for name in ("✓ 模型", "\ud800", 'quote " backslash \\', "\0"):
        assert codec.from_json(TensorSpec, codec.to_json(TensorSpec(name, "int8", ())), "file").name == name
    assert json.loads(codec.to_json({"a": "é"})) == {"a": "é"}
