"""What tells one tuned kernel from another: the space's signature, the version of its generator, and the machine.

What was measured on this machine is found by all that is known of it. A built-in result serves every machine whose cores compute alike:
its key has how wide vectors are, how many registers and multiply-adds in a cycle there are, and the instructions for the types at hand.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from anycann.codegen.kernels.arithmetic_rate import fma_rate
from anycann.codegen.space import Space
from anycann.target.target import Target

# Instructions that decide which kernels are generated; others do not change what is best.
TELLING_FEATURES = ("fma", "avx2", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16", "amx-int8", "amx-bf16", "avxvnni", "neon", "sve")

# Those that compute with a type; float32, and what is computed as float32, needs none of them.
_FEATURES_OF_TYPES = {
    "int8": ("avx512vnni", "avxvnni", "amx-int8"),
    "uint8": ("avx512vnni", "avxvnni", "amx-int8"),
    "bfloat16": ("avx512bf16", "amx-bf16"),
    "float16": ("avx512fp16",),
}


def core_name(target: Target) -> str:
    """How a target's cores are called among the built-in results: by their vectors, as the targets of `target.NAMED`."""
    return {16: "avx512", 8: "avx2"}.get(target.lanes, "sse" if target.is_x86 else "neon")


def core(target: Target, types: frozenset[str]) -> dict[str, object]:
    """What the cores of a target have in common with others, for kernels of these types. Caches and names are not in it."""
    telling = sorted({feature for name in types for feature in _FEATURES_OF_TYPES.get(name, ())})
    return {
        "name": core_name(target),
        "registers": target.registers,
        "multiply_adds": fma_rate(target),
        "features": [feature for feature in telling if target.has(feature)],
    }


def machine(target: Target) -> dict[str, object]:
    """The features of a target that measurements depend on, as JSON has them."""
    return {
        "cpu": target.cpu,
        "lanes": target.lanes,
        "registers": target.registers,
        "l1_bytes": target.l1_bytes,
        "l2_bytes": target.l2_bytes,
        "features": [name for name in TELLING_FEATURES if target.has(name)],
    }


def identity(space: Space[Any]) -> dict[str, object]:
    """Everything an entry is found by."""
    return {**space.signature(), "version": space.version, "target": machine(space.target)}


def common_identity(space: Space[Any]) -> dict[str, object]:
    """Everything a built-in entry is found by."""
    signature = space.signature()
    return {**signature, "version": space.version, "target": core(space.target, _types(signature))}


def _types(signature: object) -> frozenset[str]:
    """The names of element types in a signature."""
    if isinstance(signature, str):
        return frozenset({signature}) & _FEATURES_OF_TYPES.keys()
    inside = signature.values() if isinstance(signature, dict) else signature if isinstance(signature, list) else ()
    return frozenset().union(*map(_types, inside))


def key_of(space: Space[Any]) -> str:
    """The identity as 32 hex digits, as Ascend's banks name their entries."""
    return digest(identity(space))


def digest(facts: dict[str, object]) -> str:
    """32 hex digits of plain data, whatever the order of its names."""
    return hashlib.md5(json.dumps(facts, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
