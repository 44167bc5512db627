"""The structured values of `atc`: output nodes and types, and the files that switch rules and precision."""

from __future__ import annotations

from collections.abc import Iterator
import json
import re
from typing import Literal, TypeAlias

from anycann.support.records import dataclass
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_option import OUTPUT_TYPES

DTYPES = {"FP32": "float32", "FP16": "float16", "DOUBLE": "float64"}
# what an .ini file of --op_precision_mode may say, and whether it asks for the exact or the fast kernel here
PRECISION_WORDS: dict[str, str | None] = {
    "high_precision": "high_precision",
    "high_performance": "high_performance",
    "super_performance": "high_performance",
    "enable_float_32_execution": "high_precision",
    "enable_hi_float_32_execution": "high_precision",
    "keep_fp16": None,
    "support_out_of_bound_index": None,
}
SwitchState: TypeAlias = Literal["on", "off"]
ALL_RULES = "ALL"


@dataclass(frozen=True)
class NodeOutput:
    """Output number `index` of the node called `node`."""

    node: str
    index: int


@dataclass(frozen=True)
class OutNodes:
    """`--out_nodes`: outputs of nodes, or names of tensors; exactly one of the two is not empty."""

    nodes: tuple[NodeOutput, ...] = ()
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputTypes:
    """`--output_type`: one numpy dtype name for `all` outputs ("" for none), or one for single outputs of nodes."""

    all: str = ""
    single: tuple[tuple[NodeOutput, str], ...] = ()


def _items(text: str, separator: str = ";") -> list[str]:
    return [part.strip() for part in text.split(separator) if part.strip()]


def _node_output(text: str) -> NodeOutput | None:
    node, colon, index = text.rpartition(":")
    return NodeOutput(node, int(index)) if colon and node and index.isdecimal() else None


def parse_out_nodes(text: str) -> OutNodes:
    """`"a:0;b:1"` names outputs of nodes, `"logits;boxes"` output tensors. Raises UsageError where the two forms are mixed."""
    items = _items(text)
    nodes = [_node_output(item) for item in items]
    found = tuple(node for node in nodes if node is not None)
    if not found:
        return OutNodes(tensors=tuple(items))
    if len(found) != len(items):
        raise AtcUsageError("E10001", value=text, parameter="--out_nodes", reason="write `node:index` for all outputs or for none")
    return OutNodes(nodes=found)


def parse_output_type(text: str) -> OutputTypes:
    """`"FP16"`, or `"node:0:FP16;other:1:FP32"`. Raises UsageError for an unknown type or another form."""
    if ":" not in text:
        return OutputTypes(all=_dtype(text, text) if text else "")
    single = []
    for item in _items(text):
        node, _, type_name = item.rpartition(":")
        output = _node_output(node)
        if output is None:
            raise AtcUsageError("E10001", value=item, parameter="--output_type", reason="write `node:index:type`")
        single.append((output, _dtype(type_name, text)))
    return OutputTypes(single=tuple(single))


def _dtype(name: str, text: str) -> str:
    """numpy's name of an ATC type name."""
    if name in ("HIF8", "FP8E5M2", "FP8E4M3FN"):
        raise AtcUnsupportedError(f"--output_type={text}: 8-bit floats are not there yet")
    if name not in OUTPUT_TYPES:
        reason = f"only support {', '.join(OUTPUT_TYPES)}"
        raise AtcUsageError("E10001", value=text, parameter="--output_type", reason=reason)
    return DTYPES.get(name, name.lower())


def parse_names(text: str, separator: str = ";") -> tuple[str, ...]:
    """`"a;b"` -> ("a", "b")."""
    return tuple(_items(text, separator))


def parse_switches(text: str, option: str = "optimization_switch") -> dict[str, SwitchState]:
    """`"RuleA:on;RuleB:off"` -> {"RuleA": "on", "RuleB": "off"}. Raises UsageError for a state that is neither."""
    return dict(_switch(item, option) for item in _items(text))


def _switch(item: str, option: str) -> tuple[str, SwitchState]:
    name, _, state = (part.strip() for part in item.rpartition(":"))
    if not name or state not in ("on", "off"):
        raise AtcUsageError("E10001", value=item, parameter=f"--{option}", reason="write `Rule:on` or `Rule:off`")
    return name, "on" if state == "on" else "off"


def read_fusion_switch_file(path: str) -> dict[str, SwitchState]:
    """Rules by name from lines `Rule:off` or from `{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {...}}}`.

    Raises UsageError for another form (E10032 where JSON is broken).
    """
    if _read(path).lstrip().startswith("{"):
        return _json_switches(path)
    return dict(_switch(line, "fusion_switch_file") for line in read_lines(path))


def _json_switches(path: str) -> dict[str, SwitchState]:
    switch = read_json_object(path).get("Switch")
    if not isinstance(switch, dict):
        raise AtcUsageError("E10032", file_name=path, reason='the object "Switch" is missing')
    flat = []
    for group, rules in switch.items():
        if group not in ("GraphFusion", "UBFusion") or not isinstance(rules, dict):
            raise AtcUsageError("E10032", file_name=path, reason=f"{group} is not GraphFusion or UBFusion with an object of rules")
        flat += [f"{name}:{state}" for name, state in rules.items()]
    return dict(_switch(item, "fusion_switch_file") for item in flat)


def read_json_object(path: str) -> dict[str, object]:
    """The object of a JSON file. Raises UsageError (E10032) for another one."""
    try:
        loaded = json.loads(_read(path))
    except ValueError as error:
        raise AtcUsageError("E10032", file_name=path, reason=error) from None
    if not isinstance(loaded, dict):
        raise AtcUsageError("E10032", file_name=path, reason="it does not hold an object")
    return loaded


def read_op_precision_mode(path: str) -> dict[str, str]:
    """`high_precision` or `high_performance` by operator type, from lines `OpType=word`; sections are names for people only.

    Raises UsageError for an unknown word, UnsupportedError for one that has no meaning here.
    """
    modes = {}
    for line in read_lines(path):
        if line.startswith("["):
            continue
        op_type, equals, word = (part.strip() for part in line.partition("="))
        if not equals or word not in PRECISION_WORDS:
            reason = f"{line!r} is not `OpType=` and one of {', '.join(PRECISION_WORDS)}"
            raise AtcUsageError("E10001", value=path, parameter="--op_precision_mode", reason=reason)
        mode = PRECISION_WORDS[word]
        if mode is None:
            raise AtcUnsupportedError(f"--op_precision_mode: {op_type}={word} is not there yet")
        modes[op_type] = mode
    return modes


def read_lines(path: str) -> Iterator[str]:
    """Lines without comments (`#`, `;` in front) and blanks. Raises UsageError for a file that can not be read."""
    for line in _read(path).splitlines():
        stripped = line.strip()
        if stripped and not re.match(r"[#;]", stripped):
            yield stripped


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise AtcUsageError("E10001", value=path, parameter="file", reason=f"it can not be read: {error}") from None
