"""The metadata section: what a model is called, how it was made, and what it takes and gives, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
import json

from anycann.om import codec
from anycann.om.plan import TensorSpec
from anycann.support.errors import ModelError

REQUIRED = {
    "name": str,  # of the model
    "producer": str,  # "anycann 0.1.0"
    "soc_version": str,  # as given to atc: "host", "Ascend310P3"
    "precision": str,  # precision mode
    "atc_arguments": dict,  # option name -> its text
    "inputs": list,  # of TensorSpec as JSON; open sizes are names or null
    "outputs": list,
    "gears": list,  # of {"key": a key of programs, ...}; empty for a model with one fixed shape
}


def specs_to_json(specs: tuple[TensorSpec, ...]) -> list[object]:
    """Inputs or outputs as the metadata hold them."""
    return [codec.encode(spec) for spec in specs]


def specs_from_json(values: object, where: str) -> tuple[TensorSpec, ...]:
    """Inputs or outputs from the metadata. Raises ModelError."""
    if not isinstance(values, list):
        raise ModelError(f"{where} is {values!r:.60}; accepted: a list of tensors")
    return tuple(codec.decode(TensorSpec, value, f"{where}[{index}]") for index, value in enumerate(values))


def check_metadata(metadata: Mapping[str, object], where: str) -> None:
    """Raise ModelError, beginning with `where`, unless everything REQUIRED is there and of its type. More may be there."""
    for key, kind in REQUIRED.items():
        value = metadata.get(key)
        if not isinstance(value, kind):
            got = f"is {value!r:.60}" if key in metadata else "is missing"
            raise ModelError(f"{where}: {key!r} {got}; accepted: {_JSON_NAMES[kind]}")
    for key in ("inputs", "outputs"):
        names = [spec.name for spec in specs_from_json(metadata[key], f"{where}: {key}")]
        if len(set(names)) != len(names):
            raise ModelError(f"{where}: {key} are {names}; accepted: each name once")


_JSON_NAMES = {str: "text", dict: "an object", list: "an array"}


def metadata_to_bytes(metadata: Mapping[str, object]) -> bytes:
    """The section: ASCII JSON with sorted keys, so that equal metadata give equal bytes."""
    return json.dumps(codec.encode(dict(metadata)), sort_keys=True, indent=1, allow_nan=False).encode()


def metadata_from_bytes(data: bytes, where: str) -> dict[str, object]:
    """Read the section. Raises ModelError for damaged or incomplete metadata."""
    value = codec.parse_json(data, where)
    if not isinstance(value, dict):
        raise ModelError(f"{where} is {value!r:.60}; accepted: an object")
    check_metadata(value, where)
    return value
