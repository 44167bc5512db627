"""An offline model in memory: what `atc` makes, what a file holds, what the runtime runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from anycann.om.plan import Program, TensorSpec
from anycann.support.records import dataclass

Bytes: TypeAlias = npt.NDArray[np.uint8]


class ConstantStore(Protocol):
    """Constants that are still in pieces, as `ConstantPool` keeps them."""

    @property
    def nbytes(self) -> int:
        """The size of all of it, padding included."""

    def pieces(self) -> Iterator[memoryview]:
        """The content in order, padding included, a bounded piece at a time."""


@dataclass(frozen=True)
class Region:
    """A part of the graph that is compiled for the shapes it meets: its serialised ONNX model (big weights refer to the constants, as in
    `OfflineModel.graph`) and the programs there are already, by `input_key` of their inputs."""

    graph: bytes
    programs: Mapping[str, Program] = field(default_factory=dict)


@dataclass(frozen=True)
class OfflineModel:
    """Everything about a compiled model.

    `metadata` is JSON data, see `metadata.py`. `graph` is a serialised ONNX model whose big weights refer to `constants` (`weights` puts
    them together). `constants` are uint8, aligned to 64 bytes, read-only when mapped from a file. `programs` holds one program a gear,
    by a key of the compiler's choice (`input_key`). `code` maps the key of a target to its kernels: symbol -> object file. Of a model that
    was read from a file, `code` holds only what may be trusted; without it, programs are for looking at, not for running.
    """

    metadata: Mapping[str, object]
    graph: bytes
    constants: Bytes | ConstantStore
    programs: Mapping[str, Program] = field(default_factory=dict)
    regions: Mapping[str, Region] = field(default_factory=dict)
    code: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)

    def trusted_code(self, target_key: str) -> Mapping[str, bytes] | None:
        """Kernels for that target (`Target.key`) that may be run with `programs`, or None: then compile `graph` again and use neither."""
        return self.code.get(target_key)


def input_key(inputs: Sequence[TensorSpec], fed: Sequence[TensorSpec] = ()) -> str:
    """Text for concrete input dtypes and shapes, to find a program by: "float32[1,3,224,224];int64[]". Raises ValueError for open sizes.

    Inputs with a default value that are fed too (`fed`) come with their names: "float32[2];scale=float32[]".
    """
    if any(not isinstance(size, int) for spec in (*inputs, *fed) for size in spec.shape):
        raise ValueError(f"inputs {(*inputs, *fed)} have open sizes and name no program")
    return ";".join([_type_key(spec) for spec in inputs] + [f"{spec.name}={_type_key(spec)}" for spec in fed])


def _type_key(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]"
