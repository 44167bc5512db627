"""Which layouts each kernel generator reads its operands in, held where they arrive: of another layout it would read wrong numbers.

A tail and a nest read any layout, for `Place` makes their addresses; the kernels of products, attention and routines count their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from anycann.codegen.contract_convolution import convolution_reads
from anycann.codegen.contract_dots import dot_reads, takes_convolution
from anycann.codegen.space import Choices
from anycann.support.errors import InternalError
from anycann.target.target import Target
from anycann.te.contractions import Attention, Convolution, MatMul, Picture, Recurrent, WeightGradient, operands
from anycann.te.layout import NC1HWC0, ND, WINDOW, window_rows
from anycann.te.routines import Routine
from anycann.te.tensor import Placeholder, Tensor

_FLAT = frozenset({ND})


def layouts_read(operator: object, operand: Tensor, target: Target, choices: Choices) -> frozenset[str]:
    """The layouts in which the kernel of a contraction reads `operand`; WINDOW stands for any number of rows.

    Raises InternalError for an operator that nothing is declared for.
    """
    if isinstance(operator, Convolution) and operand is operator.x:
        return dot_reads(operator) if takes_convolution(operator, target, choices) else convolution_reads(operator, target)
    if isinstance(operator, WeightGradient) and operand is operator.dy:
        return frozenset({NC1HWC0})
    if isinstance(operator, Convolution | WeightGradient | MatMul | Attention | Picture | Recurrent | Routine):
        return _FLAT
    raise InternalError(f"{type(operator).__name__} does not say which layouts its kernel reads")


def check_layouts(operator: object, layouts: Mapping[str, str], target: Target, choices: Choices) -> None:
    """Raise InternalError if an operand of a contraction is stored as its kernel does not read it. `layouts`: by name (absent: ND)."""
    for operand in operands(operator):
        if not isinstance(operand, Placeholder):
            continue
        stored = layouts.get(operand.name, ND)
        accepted = layouts_read(operator, operand, target, choices)
        if (stored if window_rows(stored) is None else WINDOW) not in accepted:
            kernel = type(operator).__name__
            raise InternalError(f"the kernel of a {kernel} was given {operand.name} in {stored}; it reads {', '.join(sorted(accepted))}")
