"""Files that are damaged, hostile, or something else: a clear error, never a wrong model."""

from dataclasses import replace
from pathlib import Path
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from anycann.om import checksum, format
from anycann.om.model import Region
from anycann.om.plan import Buffer, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.om.programs import programs_to_bytes
from anycann.om.reader import read_offline_model
from anycann.support.errors import AnyCANNError, InternalError, ModelError, UnsupportedError
from tests.om.files import contents, file_bytes, seal, seal_sections
from tests.om.models import small_model

GOOD = (Path(__file__).parent / "samples" / "v1.om").read_bytes()


def assert_refused(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_offline_model(data)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "model.om").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model.om is empty; accepted: an offline model written by atc"):
        read_offline_model(tmp_path / "model.om")


@pytest.mark.parametrize("length", [1, 7, 8, 12, 63, 64, 65, 200, 4096, len(GOOD) // 2, len(GOOD) - 4096, len(GOOD) - 1])
def test_a_truncated_file_is_refused(length):
    assert_refused(GOOD[:length], "is truncated")


def test_a_file_with_something_behind_it_is_refused():
    assert_refused(GOOD + b"\0", f"has {len(GOOD) + 1} bytes where its header announces {len(GOOD)}")


@pytest.mark.parametrize(
    ("start", "looks"),
    [
        (b"IMOD\x20\0\0\0", "an offline model of Ascend's own atc"),
        (b"PK\x03\x04\0\0\0\0", "a zip archive"),
        (b"\x08\x0a\x12\x07pytorch", "it begins with 08 0a 12 07 70 79 74 6f"),
    ],
)
def test_another_kind_of_file_is_recognised(start, looks):
    assert_refused(start + bytes(5000), f"is no offline model of AnyCANN.*{looks}")


def test_a_flipped_bit_is_found_wherever_it_is():
    for position in [*range(1000), *range(1000, len(GOOD), 97), len(GOOD) - 1]:
        damaged = bytearray(GOOD)
        damaged[position] ^= 1 << position % 8
        with pytest.raises((ModelError, UnsupportedError)):
            read_offline_model(bytes(damaged))


@pytest.mark.parametrize("name", list(contents(GOOD)))
def test_a_flipped_bit_is_reported_with_its_section(name):
    section = format.read_sections(memoryview(GOOD), "file")[name]
    for position in (section.offset, section.offset + section.nbytes // 2, section.offset + section.nbytes - 1):
        damaged = bytearray(GOOD)
        damaged[position] ^= 0x10
        assert_refused(bytes(damaged), f"is damaged: the .* checksum of section {name} does not match")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_damage_never_gives_a_model(data: st.DataObject):
    start = data.draw(st.integers(0, len(GOOD) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=300))
    damaged = (GOOD[:start] + patch + GOOD[start + len(patch) :])[: len(GOOD)]
    if damaged != GOOD:
        with pytest.raises(AnyCANNError):
            read_offline_model(damaged)


def test_a_version_from_the_future_says_which_and_what_is_read():
    newer = GOOD[:8] + struct.pack("<I", 7) + GOOD[12:]
    with pytest.raises(UnsupportedError, match="has version 7 of the offline model format; this AnyCANN reads versions 1 to 2"):
        read_offline_model(newer)
    assert_refused(GOOD[:8] + struct.pack("<I", 0) + GOOD[12:], "its header gives version 0")


def table() -> tuple[list[format.Section], dict[int, bytes]]:
    sections = list(format.read_sections(memoryview(GOOD), "file").values())
    return sections, {s.offset: GOOD[s.offset : s.offset + s.nbytes] for s in sections}


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (1, {"name": "metadata"}, "section metadata is there twice"),
        (2, {"offset": 4096}, "section programs begins at byte 4096, inside what ends at byte"),
        (1, {"offset": 64}, "section graph begins at byte 64, inside what ends at byte"),
        (1, {"offset": 8200}, "section graph begins at byte 8200; accepted: 8192, the next page border"),
        (3, {"offset": 1 << 40}, "ends at byte [0-9]+ of a file of"),
        (3, {"nbytes": 1 << 62}, "accepted: up to"),
        (0, {"nbytes": 1 << 63}, "accepted: up to"),
        (3, {"offset": (1 << 64) - 4096}, "accepted: up to"),
        (0, {"nbytes": 5000}, "begins at byte"),
        (0, {"name": "../../etc"}, "has no section metadata"),
        (0, {"name": "Ünïcode"}, "is no section name"),
        (0, {"name": ""}, "is no section name"),
        (0, {"kind": 9}, "has checksum kind 9; accepted: 1, 2"),
    ],
)
def test_a_table_that_lies_is_refused(number, change, message):
    sections, placed = table()
    sections[number] = replace(sections[number], **change)
    assert_refused(lying_file(sections, placed), message)


def lying_file(sections: list[format.Section], placed: dict[int, bytes]) -> bytes:
    """A file whose header announces its true length, whatever its table says."""
    entries = b"".join(format.ENTRY.pack(s.name.encode(), s.kind, 0, s.offset, s.nbytes, s.digest) for s in sections)
    fields = (format.MAGIC, format.VERSION, len(sections), len(GOOD), len(entries))
    digest = format._front_digest(format.HEADER.pack(*fields, bytes(16)), entries)
    return format.HEADER.pack(*fields, digest) + entries + GOOD[format.HEADER.size + len(entries) :]


def test_an_absurd_number_of_sections_is_refused():
    for count, table_bytes in ((0, 0), (1 << 31, (1 << 31) * 96), (5, 96), (2000, 2000 * 96)):
        header = format.HEADER.pack(format.MAGIC, 1, count, len(GOOD), table_bytes, bytes(16))
        assert_refused(header + GOOD[64:], f"its header gives {count} sections")


def test_something_hidden_in_the_padding_is_refused():
    sections, placed = table()
    hidden = bytearray(seal_sections(sections, placed))
    hidden[sections[0].offset + sections[0].nbytes] = 1
    assert_refused(bytes(hidden), "the padding from byte .* is not zero")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes; accepted: at least 8"),
        (struct.pack("<Q", 1 << 60) + b"{}", "has an index of 1152921504606846976 bytes"),
        (struct.pack("<Q", 2) + b"[]", "its index is .*; accepted: an object"),
        (struct.pack("<Q", 5) + b"{]]]]", "is no JSON"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "has a key twice"),
        (struct.pack("<Q", 200000) + b"[" * 200000, "is no JSON"),
        (struct.pack("<Q", 14) + b'{"schema":NaN}', "NaN is no JSON number"),
        (struct.pack("<Q", 5006) + b'{"a":' + b"9" * 5000 + b"}", "is no JSON"),
        (struct.pack("<Q", 2) + b"{}", "has schema None; accepted: 1 to 1"),
        (struct.pack("<Q", 12) + b'{"schema":1}', "accepted: an object"),
    ],
)
def test_a_damaged_programs_section_is_refused(data, message):
    parts = {name: part for name, part in contents(GOOD).items() if not name.startswith("code/")}
    assert_refused(seal({**parts, "programs": data}), f"section programs.*{message}")


def test_a_schema_from_the_future_is_not_supported_yet():
    parts = contents(GOOD)
    index = b'{"schema":2}'
    with pytest.raises(UnsupportedError, match="section programs has schema 2; this AnyCANN reads schemas 1 to 1"):
        read_offline_model(seal({**parts, "programs": struct.pack("<Q", len(index)) + index}))


@pytest.mark.parametrize("place", [[0, 1 << 40], [-1, 4], [0], "x", None, [0.5, 1], [True, "a"]])
def test_a_program_outside_its_section_is_refused_when_it_is_asked_for(place):
    import json

    index = json.dumps({"schema": 1, "programs": {"p": place}, "regions": {"r": {"graph": place, "programs": {}}}}).encode()
    model = read_offline_model(seal({**contents(GOOD), "programs": struct.pack("<Q", len(index)) + index}))
    with pytest.raises(ModelError, match=r"program 'p' is at .*accepted: an offset and a length"):
        model.programs["p"]
    with pytest.raises(ModelError, match=r"the graph of region 'r' is at .*accepted: an offset and a length"):
        model.regions["r"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has -1 MACs in 0 bytes"),
        (struct.pack("<Q", 1 << 63), "MACs in 8 bytes; accepted: up to 64"),
        (struct.pack("<Q", 2) + bytes(63), "has 2 MACs in 71 bytes"),
        (struct.pack("<QQ", 0, 2) + b"{}", "is for target None and compiler None"),
    ],
)
def test_a_damaged_code_section_is_refused(data, message):
    parts = contents(GOOD)
    name = next(name for name in parts if name.startswith("code/"))
    assert_refused(seal({**parts, name: data}), f"section {name}.*{message}")


def test_code_under_the_name_of_another_target_is_refused():
    parts = contents(GOOD)
    name = next(name for name in parts if name.startswith("code/"))
    parts["code/" + "0" * 32] = parts.pop(name)
    assert_refused(seal(parts), "accepted: the target of its name")


def test_a_freshly_written_file_is_like_the_sample():
    fresh, kept = contents(file_bytes(small_model())), contents(GOOD)
    assert {name for name in fresh if not name.startswith("code/")} == {name for name in kept if not name.startswith("code/")}
    assert all(checksum.digest_of(1, fresh[name]) == checksum.digest_of(1, kept[name]) for name in ("metadata", "graph", "constants"))


KEY = "float32[4]"
_MUL = Task("mul_2", (Buffer("input", 0, 16), Buffer("arena", 0, 16), Buffer("output", 0, 16)), 1, 0, (), (), ())
BODY = Program((TensorSpec("x", "float32", (4,)),), (TensorSpec("x", "float32", (4,)),), 16, (NativeStep((_MUL,)),), {})
REGION_DAMAGES = {
    "a buffer beyond the arena": (replace(BODY, arena_bytes=15), KEY, "leaves its space"),
    "an unknown kernel": (replace(BODY, steps=(NativeStep((replace(_MUL, symbol="system"),)),)), KEY, "kernel system is not in"),
    "an unknown region": (replace(BODY, steps=(RegionStep("deferred", "", ("none",), (), ((),), ()),)), KEY, "names region 'none'"),
    "the key of other inputs": (BODY, "float32[7]", "has inputs .*; accepted: those its key names"),
    "open sizes": (replace(BODY, inputs=(TensorSpec("x", "float32", (None,)),), steps=()), "float32[None]", "has inputs"),
}


@pytest.mark.parametrize("case", REGION_DAMAGES)
def test_a_damaged_program_of_a_region_is_neither_read_nor_written(case):
    damaged, key, message = REGION_DAMAGES[case]
    regions = {**small_model().regions, "then": Region(b"", {key: damaged})}
    model = read_offline_model(seal({**contents(GOOD), "programs": programs_to_bytes({}, regions)}))
    with pytest.raises(ModelError, match=f"program .* of region 'then'.*{message}"):
        model.regions["then"].programs[key]
    with pytest.raises(InternalError, match=message):
        file_bytes(replace(small_model(), regions=regions))


def test_a_good_program_of_a_region_is_read():
    stored = programs_to_bytes({}, {"then": Region(b"", {KEY: BODY})})
    assert read_offline_model(seal({**contents(GOOD), "programs": stored})).regions["then"].programs[KEY] == BODY
