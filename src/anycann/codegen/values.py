"""Values of LLVM IR and their types as text: `%v7` of `<16 x float>`, literals, and the suffixes of intrinsics."""

from __future__ import annotations

from dataclasses import dataclass
import struct

import numpy as np

INDEX = "i64"
POINTER = "ptr"


@dataclass(frozen=True)
class Value:
    """An SSA name or literal with its LLVM type."""

    text: str
    type: str

    @property
    def lanes(self) -> int:
        """Number of vector lanes; 1 for a scalar."""
        return int(self.type[1:].split(" x ")[0]) if self.type.startswith("<") else 1

    @property
    def element(self) -> str:
        """The scalar type."""
        return self.type[1:-1].split(" x ")[1] if self.type.startswith("<") else self.type


def vector_type(element: str, lanes: int) -> str:
    """`<16 x float>`; the scalar type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def is_float(element: str) -> bool:
    """True for the scalar types float, double and half."""
    return element in ("float", "double", "half")


def literal(number: float, type_: str) -> Value:
    """A constant of a scalar or vector type (splatted)."""
    shape = Value("", type_)
    lanes, element = shape.lanes, shape.element
    if is_float(element):
        text = _float_literal(number, element)
    elif element == "i1":
        text = "true" if number else "false"
    else:
        text = str(int(number))
    return Value(f"splat ({element} {text})" if lanes > 1 else text, type_)


def is_integer_literal(value: Value) -> bool:
    """Whether the value is a number that is known while the code is written."""
    return value.text.lstrip("-").isdigit()


def _float_literal(number: float, element: str) -> str:
    """LLVM writes float and double literals as the 64 bits of a double; half as its own 16 bits."""
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    if element == "float":
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def mangle(type_: str) -> str:
    """LLVM's suffix for an overloaded intrinsic: float -> f32, <16 x i8> -> v16i8."""
    names = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}
    value = Value("", type_)
    element = names.get(value.element, value.element)
    return element if value.lanes == 1 else f"v{value.lanes}{element}"
