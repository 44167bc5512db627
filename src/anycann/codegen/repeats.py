"""A network repeats its layers: a kernel that differs from an earlier one in names alone is that one, and is not written again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from anycann.support import options as settings
from anycann.support.errors import InternalError
from anycann.te.form import Former

if TYPE_CHECKING:
    from anycann.codegen.kernel import Kernel
    from anycann.codegen.nest_kernel import Output


class Repeats:
    """The kernels written so far for one target, by what their text depends on."""

    def __init__(self) -> None:
        self._written: dict[Hashable, tuple[Kernel, tuple[int, ...]]] = {}

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
        known = self._written.get(key)
        if known is None:
            kernel = write()
            self._written[key] = (kernel, tuple(former.names[name] for name in kernel.arguments))
            return kernel
        kernel = replace(known[0], arguments=tuple(names[number] for number in known[1]))
        if settings.VERIFY.get() and write() != kernel:
            raise InternalError(f"{kernel.symbol} was taken for the kernel of {', '.join(o.name for o in outputs)}, which is another one")
        return kernel
