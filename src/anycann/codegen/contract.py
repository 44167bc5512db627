"""A convolution, matrix product or attention and the elementwise tail fused to it, as one kernel.

The generators in kernels/ deliver finished vectors of the product; `Tail` evaluates the group's outputs on each and stores them.
What most models have none of is imported where it is met: forty modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anycann.codegen.contract_byte_product import generate_byte_product, takes_byte_product
from anycann.codegen.contract_convolution import convolution_layout, convolution_rows, generate_convolution, refuse_convolution
from anycann.codegen.contract_convolution import gains_by_planes as convolution_gains
from anycann.codegen.contract_dot_matmul import generate_dot_matmul, takes_matmul
from anycann.codegen.contract_dots import dot_layout, dot_rows, generate_dot_convolution, takes_convolution
from anycann.codegen.contract_layouts import check_layouts
from anycann.codegen.contract_matmul import generate_matmul, refuse_matmul
from anycann.codegen.contract_rounded import generate_rounded, takes_rounded
from anycann.codegen.kernel import RowTasks
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.space import Choices
from anycann.codegen.tail import Constants, Generated
from anycann.support.errors import InternalError
from anycann.target.target import Target
from anycann.te.contractions import Attention, Convolution, MatMul, Picture, Recurrent, WeightGradient
from anycann.te.layout import ND
from anycann.te.nest import contractions
from anycann.te.routines import Routine
from anycann.te.tensor import Contraction, Placeholder

UNASKED = Choices()


def refuse(contraction: Contraction, is_constant: Callable[[str], bool]) -> str | None:
    """Why no generator takes this product, or None. `is_constant(name)`: whether an operand is known while compiling."""
    operator = contraction.operator
    if isinstance(operator, Convolution):
        return refuse_convolution(operator, is_constant)
    if isinstance(operator, MatMul):
        return refuse_matmul(operator)
    if isinstance(operator, WeightGradient):
        from anycann.codegen.contract_gradient import refuse_gradient

        return refuse_gradient(operator)
    if isinstance(operator, Recurrent):
        from anycann.codegen.contract_recurrent import refuse_recurrent

        return refuse_recurrent(operator, is_constant)
    if isinstance(operator, Attention):
        from anycann.codegen.contract_attention import refuse_attention

        return refuse_attention(operator)
    if isinstance(operator, Routine):
        from anycann.codegen.contract_routine import refuse_routine

        return refuse_routine(operator)
    if isinstance(operator, Picture):
        return None
    return f"no kernel generator for {type(operator).__name__}"


def wanted_layout(contraction: Contraction, name: str, stored: str, target: Target, choices: Choices = UNASKED) -> str:
    """The layout operand `name` must have: `stored` itself if the generator reads it as it is."""
    operator = contraction.operator
    if isinstance(operator, WeightGradient):
        from anycann.codegen.contract_gradient import gradient_layout

        return gradient_layout(operator, name)
    if not isinstance(operator, Convolution):
        return ND
    if takes_convolution(operator, target, choices):
        return dot_layout(operator, name, stored)
    return convolution_layout(operator, name, stored, target, choices)


def gains_by_planes(contraction: Contraction, target: Target, choices: Choices, written: bool) -> bool:
    """Whether it is a convolution that had better read and write row-major planes; `written`: it has to write them in any case."""
    operator = contraction.operator
    if not isinstance(operator, Convolution) or takes_convolution(operator, target, choices):
        return False
    return convolution_gains(operator, target, choices, written)


def rows_read(contraction: Contraction, name: str, target: Target, choices: Choices = UNASKED) -> RowTasks | str:
    """How the kernel of this product goes along the rows of its row-major operand `name`, which it reads a few at a time; else why not."""
    operator = contraction.operator
    if not isinstance(operator, Convolution) or not isinstance(operator.x, Placeholder) or operator.x.name != name:
        return "only the image that a convolution reads can be made row by row"
    if takes_convolution(operator, target, choices):
        return dot_rows(operator, target, choices)
    return convolution_rows(operator, target, choices)


def generate_contraction(
    outputs: Sequence[Output], layouts: Mapping[str, str], target: Target, constants: Constants, choices: Choices, repeats: Repeats
) -> Generated:
    """The kernel of one contraction and its tail. `layouts`: storage of the placeholders by name (absent: row-major).

    Raises InternalError for an operand in a layout that the kernel does not read, or of a type that `refuse` refuses.
    """
    anchor = contractions([o.tensor for o in outputs])[0]
    check_layouts(anchor.operator, layouts, target, choices)
    why = refuse(anchor, lambda name: True)
    if why is not None:
        raise InternalError(f"a kernel was asked for what none computes: {why}")
    if isinstance(anchor.operator, Convolution) and takes_convolution(anchor.operator, target, choices):
        return generate_dot_convolution(anchor, anchor.operator, outputs, layouts, target, constants, choices, repeats)
    if isinstance(anchor.operator, MatMul) and takes_byte_product(anchor.operator, constants):
        return generate_byte_product(anchor, anchor.operator, outputs, layouts, target, constants, repeats)
    if isinstance(anchor.operator, MatMul) and takes_rounded(anchor.operator, anchor.shape, target, choices):
        return generate_rounded(anchor, anchor.operator, outputs, layouts, target, constants, repeats)
    if isinstance(anchor.operator, MatMul) and takes_matmul(anchor.operator, constants, target):
        return generate_dot_matmul(anchor, anchor.operator, outputs, layouts, target, constants, choices, repeats)
    if isinstance(anchor.operator, Convolution):
        return generate_convolution(anchor, anchor.operator, outputs, layouts, target, constants, choices, repeats)
    if isinstance(anchor.operator, MatMul):
        return generate_matmul(anchor, anchor.operator, outputs, layouts, target, constants, choices, repeats)
    if isinstance(anchor.operator, Attention):
        from anycann.codegen.contract_attention import generate_attention

        return generate_attention(anchor, anchor.operator, outputs, layouts, target, choices, repeats)
    if isinstance(anchor.operator, Picture):
        from anycann.codegen.contract_picture import generate_picture

        return generate_picture(anchor, anchor.operator, outputs, layouts, target)
    raise InternalError(f"no kernel generator for {type(anchor.operator).__name__}")
