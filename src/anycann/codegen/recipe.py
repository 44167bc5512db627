"""Everything a kernel is generated from, so that it can be generated again with other choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anycann.codegen.contract import UNASKED, generate_contraction
from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.layout import ND, window_rows
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

    def of_whole_images(self) -> Recipe:
        """The same with images row-major that only a window is kept of, so that the kernel runs alone."""
        outputs = tuple(o if window_rows(o.layout) is None else replace(o, layout=ND) for o in self.outputs)
        return replace(self, outputs=outputs, layouts={name: ND if window_rows(at) else at for name, at in self.layouts.items()})

    def generate(self, constants: Constants, choices: Choices = UNASKED, repeats: Repeats | None = None) -> Generated:
        """The kernel, and the constants packed for it. Raises CannotFuse.

        repeats: the kernels written before with the same target and choices; this one becomes one of them.
        """
        repeats = Repeats() if repeats is None else repeats
        if contractions([o.tensor for o in self.outputs]):
            return generate_contraction(self.outputs, self.layouts, self.target, constants, choices, repeats)

        def write() -> Kernel:
            return generate(self.outputs, self.layouts, self.target, self.family, choices)

        return Generated(repeats.kernel(self.family, self.outputs, self.layouts, (), write))
