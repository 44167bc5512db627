"""Values of LLVM IR and their types as text: `%v7` of `<16 x float>`, literals, and the suffixes of intrinsics."""

from __future__ import annotations

from ctypes import c_float
from dataclasses import dataclass
from functools import cache
import struct

INDEX = "i64"
POINTER = "ptr"


@dataclass(slots=True, unsafe_hash=True)  # frozen ones take twice as long to make, and a kernel has tens of thousands
class Value:
    """An SSA name or literal with its LLVM type."""

    text: str
    type: str

    @property
    def lanes(self) -> int:
        """Number of vector lanes; 1 for a scalar."""
        return _shape(self.type)[0]

    @property
    def element(self) -> str:
        """The scalar type."""
        return _shape(self.type)[1]


@cache
def _shape(type_: str) -> tuple[int, str]:
    """Lanes and scalar type."""
    if not type_.startswith("<"):
        return 1, type_
    lanes, element = type_[1:-1].split(" x ")
    return int(lanes), element


def vector_type(element: str, lanes: int) -> str:
    """`<16 x float>`; the scalar type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def is_float(element: str) -> bool:
    """True for the scalar types float, double and half."""
    return element in ("float", "double", "half")


def literal(number: float, type_: str) -> Value:
    """A constant of a scalar or vector type (splatted)."""
    lanes, element = _shape(type_)
    if is_float(element):
        text = _float_literal(number, element)
    elif element == "i1":
        text = "true" if number else "false"
    else:
        text = str(int(number))
    return Value(f"splat ({element} {text})" if lanes > 1 else text, type_)


def first_lanes(count: int, lanes: int) -> Value | None:
    """The mask of the first `count` lanes; None for all of them."""
    if count >= lanes:
        return None
    return Value("<" + ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(lanes)) + ">", vector_type("i1", lanes))


def is_integer_literal(value: Value) -> bool:
    """Whether the value is a number that is known while the code is written."""
    return value.text.lstrip("-").isdigit()


def _float_literal(number: float, element: str) -> str:
    """LLVM writes float and double literals as the 64 bits of a double; half as its own 16 bits."""
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    if element == "float":
        number = c_float(number).value
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def mangle(type_: str) -> str:
    """LLVM's suffix for an overloaded intrinsic: float -> f32, <16 x i8> -> v16i8."""
    names = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}
    lanes, element = _shape(type_)
    name = names.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"
