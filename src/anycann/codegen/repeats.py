"""A network repeats its layers, and models are compiled again: a kernel that differs from an earlier one in names alone is that one, and is
not written again. Earlier ones are those of this network, and those that were kept on disk (`kept.py`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
import json
from typing import TYPE_CHECKING, TypeAlias
import zlib

from anycann.codegen import kept
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.support import options as settings
from anycann.support.errors import InternalError
from anycann.te.form import Former

if TYPE_CHECKING:
    from anycann.codegen.nest_kernel import Output


_Written: TypeAlias = "tuple[Kernel, tuple[int, ...]]"  # and the places of its arguments among the names of what it computes


class Repeats:
    """The kernels written so far for one target and with the same choices, by what else their text depends on.

    common: what says which target and choices these are; with it kernels are kept on disk too.
    """

    def __init__(self, *common: object) -> None:
        self._common = common
        self._written: dict[Hashable, _Written] = {}

    def kernel(
        self, facts: Hashable, outputs: Sequence[Output], layouts: Mapping[str, str], others: Sequence[str], write: Callable[[], Kernel]
    ) -> Kernel:
        """The kernel of `outputs` as `write` writes it, or one written before under the names of this one.

        facts: all that its text depends on beside `outputs` and `layouts`. others: names among its arguments that are not below `outputs`,
        as those of packed weights.
        """
        former = Former()
        places = [(former.number(o.name), o.place) for o in outputs]
        form = former.form(*(o.tensor for o in outputs))
        stored = tuple(layouts.get(name) for name in former.names)
        key = (facts, tuple(places), form, stored, tuple(former.number(name) for name in others))
        names = list(former.names)
        written = self._written.get(key)
        if written is None:
            place = kept.key_of("kernel", self._common, key) if self._common else None
            written = _read(kept.find(place))
            if written is None:
                kernel = write()
                self._written[key] = written = (kernel, tuple(former.names[name] for name in kernel.arguments))
                kept.keep(place, _as_bytes(*written))
                return kernel
            self._written[key] = written
        kernel = replace(written[0], arguments=tuple(names[number] for number in written[1]))
        if settings.VERIFY.get() and write() != kernel:
            raise InternalError(f"{kernel.symbol} was taken for the kernel of {', '.join(o.name for o in outputs)}, which is another one")
        return kernel


def _as_bytes(kernel: Kernel, arguments: tuple[int, ...]) -> bytes:
    """A kernel and the places of its arguments, without their names."""
    facts = {**asdict(replace(kernel, arguments=())), "arguments": arguments}
    return zlib.compress(json.dumps(facts).encode(), 1)


def _read(data: bytes | None) -> _Written | None:
    if data is None:
        return None
    facts = json.loads(zlib.decompress(data))
    arguments, rows = tuple(facts["arguments"]), facts["rows"]
    return Kernel(**{**facts, "arguments": (), "rows": rows and RowTasks(**rows)}), arguments
