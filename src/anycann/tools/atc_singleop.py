"""`atc --singleop`: a list of single operators in JSON, an offline model for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import json
import os
from typing import Any

from anycann.acl.types import DATA_TYPES, FORMATS, data_type_of, format_number
from anycann.compiler import CompileOptions
from anycann.om.operator_spec import OperandSpec, OperatorSpec
from anycann.om.writer import write_offline_model
from anycann.single_operator import compile_operator
from anycann.support.errors import context
from anycann.support.files import folder_of
from anycann.target.soc import SOC_VERSIONS
from anycann.target.target import by_name
from anycann.tools.atc_errors import AtcUsageError
from anycann.tools.atc_outcome import Outcome
from anycann.tools.atc_parse import CommandLine
from anycann.tools.output import format_bytes

# Ascend's names of dtypes in JSON, where they are not numpy's
_DTYPES = {"float": "float32", "double": "float64", "bf16": "bfloat16", "UNDEFINED": "", "undefined": ""}
_NONE = ("RESERVED", "UNDEFINED")
_ATTRIBUTE_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool, int), "int": (int,), "float": (int, float), "string": (str,), "data_type": (str, int),
    **dict.fromkeys(("list_bool", "list_int", "list_float", "list_string", "list_list_int", "list_data_type"), (list,)),
}  # fmt: skip
_AS_GIVEN: dict[str, Callable[[Any], object]] = {"bool": bool, "float": float}


def convert_single_operators(line: CommandLine, words: Sequence[str]) -> Outcome:
    """Compile each operator of the list and write its model into the folder --output. Raises UsageError, UnsupportedError."""
    path, folder = line["singleop"], line["output"] or "."
    options = operator_options(line)
    listed = read_operators(path)
    written = []
    for number, (name, spec) in enumerate(listed):
        file = os.path.join(folder, f"{name or file_stem(number, spec)}.om")
        with folder_of(file):
            with context(f"while compiling operator {number} ({spec.op}) of {path}"):
                model = compile_operator(spec, options)
            write_offline_model(file, model)
        written.append(file)
    return Outcome(tuple(f"{file}: {format_bytes(os.path.getsize(file))}" for file in written), {"outputs": written})


def operator_options(line: CommandLine) -> CompileOptions:
    """How the operators of a list are compiled. Raises UsageError for a chip there is none of."""
    return CompileOptions(soc_version=_soc(line), target=by_name(line["target"]), arguments=dict(line.given))


def _soc(line: CommandLine) -> str:
    name = line["soc_version"] or "host"
    if name not in SOC_VERSIONS:
        raise AtcUsageError("E10001", value=name, parameter="--soc_version", reason="there is no such chip")
    return name


def file_stem(number: int, spec: OperatorSpec) -> str:
    """Ascend's name: place in the list, operator, and dtype, format and sizes of each operand as numbers."""
    words = [str(number), spec.op]
    for operand in (*spec.inputs, *spec.outputs):
        words += [str(data_type_of(operand.dtype)), str(format_number(operand.format)), *(str(size) for size in operand.shape)]
    return "_".join(words)


def read_operators(path: str) -> list[tuple[str, OperatorSpec]]:
    """(name of the model or "", operator) of each entry. Raises UsageError with the entry and the field."""
    try:
        with open(path, encoding="utf-8") as file:
            listed = json.load(file)
    except (OSError, ValueError) as error:
        raise AtcUsageError("E10032", file_name=path, reason=error) from None
    if not isinstance(listed, list) or not listed:
        raise AtcUsageError("E10032", file_name=path, reason="it does not hold a list of operators")
    return [_Entry(path, f"operator {number}", entry).operator() for number, entry in enumerate(listed)]


class _Entry:
    """An object of the file, and where it stands."""

    def __init__(self, path: str, where: str, fields: object):
        self._path, self._where = path, where
        if not isinstance(fields, dict):
            raise self._error(f"it is a {type(fields).__name__}; accepted: an object")
        self._fields: dict[str, Any] = fields

    def operator(self) -> tuple[str, OperatorSpec]:
        inputs, outputs = (tuple(entry._operand() for entry in self._entries(key)) for key in ("input_desc", "output_desc"))
        if not outputs:
            raise self._error("output_desc is empty")
        attributes = dict(entry._attribute() for entry in self._entries("attr"))
        return str(self._fields.get("name", "")), OperatorSpec(self._text("op"), inputs, outputs, attributes)

    def _operand(self) -> OperandSpec:
        dtype = self._dtype(self._text("type"))
        format_ = self._text("format")
        if format_ not in (*FORMATS.values(), *_NONE):
            raise self._error(f"format is {format_}; accepted: {', '.join(FORMATS.values())}")
        if not dtype:
            return OperandSpec("", (), "UNDEFINED")
        shape = self._integers("shape", self._fields.get("shape"))
        ranges = tuple(
            (least, most) for least, most in (self._integers("shape_range", pair) for pair in self._fields.get("shape_range", ()))
        )
        return OperandSpec(dtype, tuple(shape), format_, ranges, self._constant())

    def _constant(self) -> tuple[float, ...] | None:
        if not self._fields.get("is_const"):
            return None
        values = self._fields.get("const_value")
        if not isinstance(values, list) or any(not isinstance(value, int | float) for value in values):
            raise self._error(f"const_value is {values!r}; accepted: a list of numbers")
        return tuple(values)

    def _attribute(self) -> tuple[str, object]:
        name, kind, value = self._text("name"), self._text("type"), self._fields.get("value")
        if kind not in _ATTRIBUTE_KINDS:
            raise self._error(f"type is {kind}; accepted: {', '.join(_ATTRIBUTE_KINDS)}")
        if not isinstance(value, _ATTRIBUTE_KINDS[kind]):
            raise self._error(f"{name} is {value!r}; accepted: {kind}")
        if kind == "data_type" and isinstance(value, str):
            return name, data_type_of(self._dtype(value))
        return name, _AS_GIVEN[kind](value) if kind in _AS_GIVEN else value

    def _dtype(self, name: str) -> str:
        found = _DTYPES.get(name, name)
        if found and found not in DATA_TYPES.values():
            raise self._error(f"type is {name}; accepted: {', '.join(sorted({*DATA_TYPES.values(), *_DTYPES}))}")
        return found

    def _integers(self, key: str, values: object) -> list[int]:
        if not isinstance(values, list) or any(not isinstance(value, int) or value < -2 for value in values):
            raise self._error(f"{key} is {values!r}; accepted: a list of sizes, -1 for an open one")
        if -2 in values:
            raise self._error(f"{key} is {values!r}: an unknown rank is not there; accepted: a size or -1 for each axis")
        return values

    def _entries(self, key: str) -> list[_Entry]:
        listed = self._fields.get(key, [])
        if not isinstance(listed, list):
            raise self._error(f"{key} is a {type(listed).__name__}; accepted: a list")
        return [_Entry(self._path, f"{self._where}, {key} {number}", fields) for number, fields in enumerate(listed)]

    def _text(self, key: str) -> str:
        value = self._fields.get(key)
        if not isinstance(value, str) or not value:
            raise self._error(f"{key} is {value!r}; accepted: a text")
        return value

    def _error(self, reason: str) -> AtcUsageError:
        return AtcUsageError("E10032", file_name=self._path, reason=f"{self._where}: {reason}")
