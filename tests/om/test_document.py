"""docs/om-format.md says what the code does: its tables are applied to the kept sample, its reader reads it."""

import ast
from hashlib import sha256
import hmac
from pathlib import Path
import re
import struct

import pytest

from anycann.om import blobs, checksum, code, constants, format, metadata, programs, signature, weights

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "om-format.md").read_text(encoding="utf-8")
SAMPLE = (Path(__file__).parent / "samples" / "v2.om").read_bytes()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = PAGE.split(f"\n{heading}", 1)[1]
    table = re.search(r"^\|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


@pytest.mark.parametrize(
    ("heading", "layout", "start"), [("## Header", format.HEADER, 0), ("## Section table", format.ENTRY, format.HEADER.size)]
)
def test_the_tables_describe_the_sample_byte_by_byte(heading, layout, start):
    position = 0
    for offset, nbytes, _, example in rows(heading):
        assert int(offset) == position
        example_bytes = bytes.fromhex(example.strip("`"))
        assert example_bytes == SAMPLE[start + position : start + position + int(nbytes)]
        position += int(nbytes)
    assert position == layout.size
    assert f"{layout.size} bytes" in PAGE.split(heading, 1)[1][:100]


def test_the_constants_of_the_page_are_those_of_the_code():
    assert format.MAGIC.hex(" ") in PAGE
    assert f"1 to {format.MAX_SECTIONS}" in PAGE
    assert {int(row[0]) for row in rows("multiple of 4096 after the last")} == set(checksum.NAMES)
    assert (format.PAGE_BYTES, checksum.BLOCK_BYTES, checksum.DIGEST_BYTES) == (4096, 64 * 1024, 32)
    assert f"`location` `{weights.LOCATION}`" in PAGE
    assert f"tensor of {weights.SMALLEST_BYTES} bytes or more" in PAGE
    assert f"multiple of {constants.ALIGNMENT_BYTES} and has at least {constants.SLACK_BYTES} zero" in PAGE
    assert f'"schema": {programs.SCHEMA},' in PAGE
    assert f"number of MACs, up to {code.MAX_MACS}" in PAGE
    assert f"`{signature._KEY_FILE}`" in PAGE
    assert signature.KEY_BYTES == 32
    assert signature.MAC_BYTES == 32


def test_the_metadata_keys_are_those_the_reader_asks_for():
    listed = {key: kind for key, kind, _ in rows("**`metadata`**")}
    assert listed == {key: kind.__name__ for key, kind in metadata.REQUIRED.items()}


def test_the_index_of_the_page_is_that_of_the_sample():
    section = format.read_sections(memoryview(SAMPLE), "sample")["programs"]
    reader = blobs.BlobReader(SAMPLE[section.offset : section.offset + section.nbytes], "sample")
    index = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert index is not None
    assert ast.literal_eval(index[1]) == reader.index


def test_a_mac_is_made_as_the_page_says():
    parts = ["target", "compiler", b"body", b"programs"]
    message = b"anycann offline model code" + b"".join(sha256(p.encode() if isinstance(p, str) else p).digest() for p in parts)
    assert signature.message("target", "compiler", b"body", b"programs") == message
    (mac,) = signature.sign(message)
    assert mac == hmac.new(signature.installation_key(), message, sha256).digest()


def test_the_reader_of_the_page_reads_the_sample(monkeypatch, capsys):
    block = next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "iter_unpack" in text)
    monkeypatch.setattr(Path, "read_bytes", lambda _: SAMPLE)
    namespace: dict[str, object] = {}
    exec(block, namespace)
    monkeypatch.undo()
    expected = {name: SAMPLE[s.offset : s.offset + s.nbytes] for name, s in format.read_sections(memoryview(SAMPLE), "sample").items()}
    assert namespace["sections"] == expected
    assert capsys.readouterr().out.splitlines()[1] == "small ✓"
    assert struct.unpack_from("<3f", expected["constants"]) == (0.0, 1.0, 2.0)
