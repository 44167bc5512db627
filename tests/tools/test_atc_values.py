"""Output nodes, output types and the files that switch rules and precision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anycann.support.errors import UnsupportedError
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_values import (
    NodeOutput,
    OutNodes,
    OutputTypes,
    parse_out_nodes,
    parse_output_type,
    parse_switches,
    read_fusion_switch_file,
    read_op_precision_mode,
)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", OutNodes()),
        ("a:0;b/c:1", OutNodes(nodes=(NodeOutput("a", 0), NodeOutput("b/c", 1)))),
        ("logits;boxes;", OutNodes(tensors=("logits", "boxes"))),
    ],
)
def test_each_form_of_out_nodes_is_read(text: str, nodes: OutNodes) -> None:
    assert parse_out_nodes(text) == nodes


def test_the_forms_of_out_nodes_do_not_mix() -> None:
    with pytest.raises(AtcUsageError, match="for all outputs or for none"):
        parse_out_nodes("a:0;logits")


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("", OutputTypes()),
        ("FP16", OutputTypes(all="float16")),
        ("UINT8", OutputTypes(all="uint8")),
        ("DOUBLE", OutputTypes(all="float64")),
        ("a:0:FP16;b:1:INT64", OutputTypes(single=((NodeOutput("a", 0), "float16"), (NodeOutput("b", 1), "int64")))),
    ],
)
def test_each_form_of_output_type_is_read(text: str, types: OutputTypes) -> None:
    assert parse_output_type(text) == types


@pytest.mark.parametrize("text", ["FP17", "a:FP16", "a:0:fp16", "a:x:FP16"])
def test_a_wrong_output_type_is_refused(text: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        parse_output_type(text)
    assert error.value.code.code == "E10001"


def test_eight_bit_floats_are_refused_as_not_there() -> None:
    with pytest.raises(UnsupportedError, match="8-bit floats"):
        parse_output_type("HIF8")


def test_switches_are_read_from_the_command_line() -> None:
    assert parse_switches("A:on;B : off;") == {"A": "on", "B": "off"}
    with pytest.raises(AtcUsageError, match="--optimization_switch is invalid"):
        parse_switches("A:maybe")


def test_the_text_and_the_json_form_of_a_switch_file_say_the_same(tmp_path: Path) -> None:
    text, as_json = tmp_path / "a.cfg", tmp_path / "b.cfg"
    text.write_text("# rules\nALL:off\n\nFuseX:on\nUbY:off\n")
    as_json.write_text(json.dumps({"Switch": {"GraphFusion": {"ALL": "off", "FuseX": "on"}, "UBFusion": {"UbY": "off"}}}))
    expected = {"ALL": "off", "FuseX": "on", "UbY": "off"}
    assert read_fusion_switch_file(str(text)) == expected
    assert read_fusion_switch_file(str(as_json)) == expected


@pytest.mark.parametrize(
    ("content", "code"),
    [("{", "E10032"), ('{"Other": {}}', "E10032"), ('{"Switch": {"X": {}}}', "E10032"), ("FuseX", "E10001"), ("FuseX:no", "E10001")],
)
def test_a_broken_switch_file_is_refused(tmp_path: Path, content: str, code: str) -> None:
    path = tmp_path / "switch.cfg"
    path.write_text(content)
    with pytest.raises(AtcUsageError) as error:
        read_fusion_switch_file(str(path))
    assert error.value.code.code == code


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "switch.cfg"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(AtcUsageError, match=r"switch\.cfg"):
        read_fusion_switch_file(str(path))


def test_op_precision_mode_is_read_with_and_without_a_section(tmp_path: Path) -> None:
    path = tmp_path / "op.ini"
    path.write_text("[ByOpType]\n; comment\nConv=high_performance\nGelu = enable_float_32_execution\n")
    assert read_op_precision_mode(str(path)) == {"Conv": "high_performance", "Gelu": "high_precision"}


def test_op_precision_mode_refuses_unknown_words_and_those_not_there(tmp_path: Path) -> None:
    path = tmp_path / "op.ini"
    path.write_text("Conv=fast\n")
    with pytest.raises(AtcUsageError, match="high_precision"):
        read_op_precision_mode(str(path))
    path.write_text("Conv=keep_fp16\n")
    with pytest.raises(UnsupportedError, match="Conv=keep_fp16 is not there yet"):
        read_op_precision_mode(str(path))
