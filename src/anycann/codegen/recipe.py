"""Everything a kernel is generated from, so that it can be generated again with other choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anycann.codegen.contract import UNASKED, generate_contraction
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated
from anycann.target.target import Target
from anycann.te.nest import contractions


@dataclass(frozen=True)
class Recipe:
    """The kernel that computes `outputs`. layouts: storage of the placeholders by name (absent: row-major).

    family: the readable part of the name of a nest.
    """

    outputs: tuple[Output, ...]
    layouts: Mapping[str, str]
    target: Target
    family: str = "te"

    def generate(self, constants: Constants, choices: Choices = UNASKED) -> Generated:
        """The kernel, and the constants packed for it. Raises CannotFuse."""
        if not contractions([o.tensor for o in self.outputs]):
            return Generated(generate(self.outputs, self.layouts, self.target, self.family, choices))
        return generate_contraction(self.outputs, self.layouts, self.target, constants, choices)
