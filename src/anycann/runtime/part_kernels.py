"""A program of kernels between other parts of an open program, called as one native function where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anycann.runtime.direct_call import Direct
from anycann.runtime.executor import CompiledProgram


class Kernels:
    """A program, and what its inputs and outputs are called in the graph. Safe in any thread."""

    def __init__(self, program: CompiledProgram, inputs: tuple[str, ...], outputs: tuple[str, ...]):
        self.program, self.inputs, self.outputs = program, inputs, outputs
        self._direct: Direct | None = None

    def run(self, operands: Sequence[object]) -> list[Any]:
        """The outputs: by one native function for operands such as the first ones, if there is one."""
        found = None if self._direct is None else self._direct(dict(zip(self.inputs, operands, strict=True)))
        if found is not None:
            return found
        results = self.program.run(operands)
        if self._direct is None:
            self._direct = self.program.direct(self.inputs, operands)
        return results
