"""All operators of `torch.ops.npu` and `torch.ops.atb`, one file a family. Importing this module registers them."""

from anycann.adapters.torch.operators import (
    activations,
    dropout,
    matrix,
    normalisation,
    quantisation,
    quantised_products,
    quantised_units,
    reshaping,
    rotary,
    scattering,
)
from anycann.adapters.torch.operators.attention import inference_operators, pages, training
from anycann.adapters.torch.operators.registry import OPERATORS

FAMILIES = (
    activations,
    dropout,
    matrix,
    normalisation,
    quantisation,
    quantised_products,
    quantised_units,
    reshaping,
    rotary,
    scattering,
    inference_operators,
    pages,
    training,
)

# by name without overload: any of the overloads
PACKETS = {name.partition(".")[0]: operator for name, operator in OPERATORS.items()}

__all__ = ["FAMILIES", "OPERATORS", "PACKETS"]
