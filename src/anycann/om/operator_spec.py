"""A single operator of Ascend as data: what `atc --singleop` is told, what its offline model says of itself, what a call asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

import numpy as np

from anycann.support.errors import ModelError, UsageError
from anycann.support.records import dataclass

METADATA_KEY = "single_operator"  # of an offline model that holds one operator
Part = Literal["type", "input", "output", "attribute"]


class OperatorError(UsageError):
    """An operator that is unknown, or was asked for with inputs, outputs or attributes it does not have; `part` says which."""

    def __init__(self, part: Part, text: str):
        super().__init__(text)
        self.part: Part = part


@dataclass(frozen=True)
class OperandSpec:
    """One input or output. dtype: numpy's name, "" for an optional input that is left out. shape: -1 for an open size.

    ranges: (least, most) of each size, empty for none. constant: the values in order, if they are known beforehand.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    format: str = "ND"
    ranges: tuple[tuple[int, int], ...] = ()
    constant: tuple[float, ...] | None = None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} {self.format}" if self.dtype else "left out"

    def takes(self, other: OperandSpec) -> bool:
        """True if a model made for this runs on `other`: the same dtype, format and sizes, where this leaves none open."""
        if (self.dtype, self.format, len(self.shape)) != (other.dtype, other.format, len(other.shape)):
            return False
        ranges = self.ranges if len(self.ranges) == len(self.shape) else ((0, -1),) * len(self.shape)
        sizes = zip(self.shape, other.shape, ranges, strict=True)
        return all(own == size or (own == -1 and least <= size and (most == -1 or size <= most)) for own, size, (least, most) in sizes)


@dataclass(frozen=True)
class OperatorSpec:
    """An operator with its inputs, outputs and attributes. defaults: what the operator's attributes are where nobody says."""

    op: str
    inputs: tuple[OperandSpec, ...]
    outputs: tuple[OperandSpec, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)

    def difference(self, call: OperatorSpec) -> tuple[Part, str] | None:
        """Why a model made for this does not do what `call` asks for: which part, and a sentence; None if it does."""
        if self.op != call.op:
            return "type", f"it is {self.op}"
        for part, own, asked in (("input", self.inputs, call.inputs), ("output", self.outputs, call.outputs)):
            if len(own) != len(asked):
                return part, f"it has {len(own)} {part}s; asked for: {len(asked)}"  # type: ignore[return-value]
            for number, (one, other) in enumerate(zip(own, asked, strict=True)):
                if not one.takes(other):
                    return part, f"{part} {number} is {one}; asked for: {other}"  # type: ignore[return-value]
                if part == "input" and one.constant is not None and one.constant != other.constant:
                    return "input", f"input {number} is a constant of other values"
        given = {**self.defaults, **self.attributes}
        for name, wanted in {**self.defaults, **call.attributes}.items():
            if name not in given or not same_attribute(given[name], wanted):
                return "attribute", f"attribute {name} is {given.get(name, 'not there')}; asked for: {wanted}"
        return None

    @property
    def is_open(self) -> bool:
        """True if a size is open."""
        return any(size < 0 for operand in (*self.inputs, *self.outputs) for size in operand.shape)


def same_attribute(one: object, other: object) -> bool:
    """Equal as Ascend keeps them: floats have 32 bits, a list is a list whatever its class."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same_attribute(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return bool(np.float32(one) == np.float32(other)) if isinstance(one, float) or isinstance(other, float) else one == other
    return one == other


def to_json(spec: OperatorSpec) -> dict[str, object]:
    """For the metadata of an offline model."""
    return {
        "op": spec.op,
        "inputs": [_operand_to_json(operand) for operand in spec.inputs],
        "outputs": [_operand_to_json(operand) for operand in spec.outputs],
        "attributes": dict(spec.attributes),
        "defaults": dict(spec.defaults),
    }


def from_json(value: object, where: str) -> OperatorSpec:
    """The reverse of `to_json`. Raises ModelError for anything else."""
    try:
        assert isinstance(value, dict)
        return OperatorSpec(
            str(value["op"]),
            tuple(_operand_from_json(operand) for operand in value["inputs"]),
            tuple(_operand_from_json(operand) for operand in value["outputs"]),
            dict(value["attributes"]),
            dict(value["defaults"]),
        )
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{where}: its description of a single operator is damaged ({type(error).__name__}: {error})") from error


def _operand_to_json(operand: OperandSpec) -> dict[str, object]:
    facts: dict[str, object] = {"dtype": operand.dtype, "shape": list(operand.shape), "format": operand.format}
    if operand.ranges:
        facts["ranges"] = [list(pair) for pair in operand.ranges]
    if operand.constant is not None:
        facts["constant"] = list(operand.constant)
    return facts


def _operand_from_json(value: Mapping[str, Any]) -> OperandSpec:
    constant = value.get("constant")
    return OperandSpec(
        str(value["dtype"]),
        tuple(int(size) for size in value["shape"]),
        str(value["format"]),
        tuple((int(least), int(most)) for least, most in value.get("ranges", ())),
        None if constant is None else tuple(constant),
    )
