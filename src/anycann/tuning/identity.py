"""What tells one tuned kernel from another: the space's signature, the version of its generator, and the machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from anycann.codegen.space import Space
from anycann.target.target import Target

# Instructions that decide which kernels are generated; others do not change what is best.
TELLING_FEATURES = ("fma", "avx2", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16", "amx-int8", "amx-bf16", "avxvnni", "neon", "sve")


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


def key_of(space: Space[Any]) -> str:
    """The identity as 32 hex digits, as Ascend's banks name their entries."""
    return digest(identity(space))


def digest(facts: dict[str, object]) -> str:
    """32 hex digits of plain data, whatever the order of its names."""
    return hashlib.md5(json.dumps(facts, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
