"""One option of `atc`: its kind of value, what becomes of it here, and the names that several options accept."""

from __future__ import annotations

from collections.abc import Callable
import enum
from functools import partial

from anycann.support.records import dataclass


class State(enum.Enum):
    """What happens with an option that is given."""

    IMPLEMENTED = "implemented"
    NO_EFFECT = "accepted with a warning"  # it only tunes Ascend silicon or Ascend's own compiler
    NOT_YET = "refused"  # it would mean something here, and is not there yet


class Kind(enum.Enum):
    """How the text of a value is read."""

    TEXT = "text"
    INPUT_FILE = "file"
    OUTPUT_PATH = "path"
    CHOICE = "choice"
    TRUE_FALSE = "true/false"
    ZERO_ONE = "0/1"
    LEVEL = "log level"
    NUMBER = "number"
    SWITCH = "switch"  # ours: present or absent, needs no value


@dataclass(frozen=True)
class Option:
    """One row. `reason` completes the sentence of a warning or refusal; `choices` are the values of a CHOICE."""

    name: str
    group: str
    kind: Kind
    default: str
    state: State
    help: str
    choices: tuple[str, ...] = ()
    reason: str = ""

    @property
    def accepted(self) -> str:
        """The accepted values in words."""
        if self.choices:
            return ", ".join(self.choices)
        words = {Kind.TRUE_FALSE: "true, false", Kind.ZERO_ONE: "0, 1", Kind.LEVEL: ", ".join(LOG_LEVELS)}
        return words.get(self.kind, self.kind.value)


LOG_LEVELS = ("debug", "info", "warning", "error", "null")
OUTPUT_TYPES = ("FP32", "FP16", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64", "DOUBLE")
PRECISION_MODES = (
    "force_fp16",
    "force_fp32",
    "cube_fp16in_fp32out",
    "allow_fp32_to_fp16",
    "allow_fp32_to_bf16",
    "must_keep_origin_dtype",
    "allow_mix_precision",
    "allow_mix_precision_fp16",
    "allow_mix_precision_bf16",
)
# --precision_mode_v2 in the names of --precision_mode; None has no counterpart
PRECISION_V2: dict[str, str | None] = {
    "fp16": "force_fp16",
    "origin": "must_keep_origin_dtype",
    "cube_fp16in_fp32out": "cube_fp16in_fp32out",
    "mixed_float16": "allow_mix_precision_fp16",
    "mixed_bfloat16": "allow_mix_precision_bf16",
    "cube_hif8": None,
    "mixed_hif8": None,
}
IMPL_MODES = ("high_precision", "high_performance", "high_precision_for_all", "high_performance_for_all")

Row = Callable[..., Option]


def rows_of(group: str) -> tuple[Row, Row, Row]:
    """Constructors of an implemented, an ineffective and a refused option of `group`."""

    def row(state: State, name: str, kind: Kind, default: str, help: str, *choices: str, reason: str = "") -> Option:
        return Option(name, group, kind, default, state, help, choices, reason)

    return partial(row, State.IMPLEMENTED), partial(row, State.NO_EFFECT), partial(row, State.NOT_YET)
