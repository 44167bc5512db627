"""`--keep_dtype`, `--modify_mixlist` and `--customize_dtypes`: operators that a precision mode of 16 bits leaves at the model's types."""

from __future__ import annotations

from collections.abc import Iterable
import re

from anycann.passes.precision import Kept, storage_of
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_parse import CommandLine
from anycann.tools.atc_values import read_json_object, read_lines

_TYPE = "OpType::"
_DTYPES = {"float": "float32", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
_LISTS, _CHANGES = ("black-list", "white-list", "gray-list"), ("to-add", "to-remove")
# Ascend's operator types whose ONNX name is another one, without the version (MatMulV2) and the D of fixed axes (ReduceMeanD)
_ONNX_TYPES = {
    "BNInference": ("BatchNormalization",),
    "BatchMatMul": ("MatMul",),
    "BatchNorm": ("BatchNormalization",),
    "Conv2D": ("Conv",),
    "Conv3D": ("Conv",),
    "DepthwiseConv2D": ("Conv",),
    "FullyConnection": ("Gemm",),
    "GroupNorm": ("GroupNormalization",),
    "InstanceNorm": ("InstanceNormalization",),
    "LayerNorm": ("LayerNormalization",),
    "MatMul": ("MatMul", "Gemm"),
    "RealDiv": ("Div",),
    "Rsqrt": ("Sqrt",),
    "Square": ("Pow",),
}


def kept_of(line: CommandLine, precision_mode: str) -> Kept:
    """What the three files keep out of the 16-bit type. Raises UsageError for a damaged file, UnsupportedError for what is not there."""
    rounds = storage_of(precision_mode) is not None
    found = [_entry(text) for text in read_lines(line["keep_dtype"])] if line["keep_dtype"] else []
    if line["modify_mixlist"] and "mix" in precision_mode:
        found += [_TYPE + name for name in _black_list(line["modify_mixlist"])]
    if line["customize_dtypes"]:
        found += _customised(line["customize_dtypes"], rounds)
    types = {onnx for name in found if name.startswith(_TYPE) for onnx in onnx_types(name.removeprefix(_TYPE))}
    return Kept(frozenset(name for name in found if not name.startswith(_TYPE)), frozenset(types))


def onnx_types(ascend: str) -> tuple[str, ...]:
    """ONNX's names of an operator type: of Ascend's own name, or of one that is ONNX's already."""
    plain = re.sub(r"(V\d+)?$", "", ascend)
    if plain not in _ONNX_TYPES and re.fullmatch(r"[A-Z]\w+[a-z]D", plain):
        plain = plain[:-1]
    return _ONNX_TYPES.get(plain, (plain,))


def _entry(text: str) -> str:
    return _TYPE + text.removeprefix(_TYPE).strip() if text.startswith(_TYPE) else text


def _black_list(path: str) -> list[str]:
    """The types that are to stay in float32. The other lists change nothing: every other operator computes in 16 bits here."""
    lists = read_json_object(path)
    for name, changes in lists.items():
        if name not in _LISTS or not isinstance(changes, dict) or any(key not in _CHANGES for key in changes):
            reason = f"{name!r} is not one of {', '.join(_LISTS)} with {' and '.join(_CHANGES)}"
            raise AtcUsageError("E10032", file_name=path, reason=reason)
        for key, types in changes.items():
            if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
                raise AtcUsageError("E10032", file_name=path, reason=f"{key!r} of {name!r} is not a list of operator types")
    black = lists.get("black-list", {})
    return list(black.get("to-add", [])) if isinstance(black, dict) else []


def _customised(path: str, rounds: bool) -> list[str]:
    """The operators all of whose types are to be float32: `name::InputDtype:float32,OutputDtype:float32`, `OpType::Type:InputDtype:...`."""
    found = []
    for line in read_lines(path):
        match = re.fullmatch(r"(OpType::\w+|.+?:):((?:Input|Output)Dtype:.+)", line)
        words = [] if match is None else [word.rpartition(":")[2].strip().lower() for word in match[2].split(",")]
        unknown = [word for word in words if word not in _DTYPES]
        if match is None or unknown:
            reason = f"{line!r} is not `name::InputDtype:type,...,OutputDtype:type,...` with types of {', '.join(_DTYPES)}"
            raise AtcUsageError("E10001", value=path, parameter="--customize_dtypes", reason=reason)
        if {_DTYPES[word] for word in words} == {"float32"}:
            found.append(match[1].removesuffix(":"))
        elif not rounds:
            raise AtcUnsupportedError(
                f"--customize_dtypes: {line}: 16 bits for single operators are not there yet; choose a --precision_mode"
            )
    return found


def check_kept(kept: Kept, names: Iterable[str]) -> None:
    """Raise UsageError for a kept node that the model, which has nodes of these names, does not have."""
    missing = sorted(kept.nodes - set(names))
    if missing:
        reason = f"the model has no node {missing[0]}"
        raise AtcUsageError("E10001", value=missing[0], parameter="--keep_dtype or --customize_dtypes", reason=reason)
