"""All operators of `torch.ops.npu` and `torch.ops.atb`, one file a family. Importing this module registers them."""

from anycann.adapters.torch.operators import (
    activations,
    boxes,
    dropout,
    formats,
    grouped,
    matrix,
    microscaling,
    normalisation,
    parallel,
    quantisation,
    quantised_products,
    quantised_units,
    recurrent,
    regions,
    reshaping,
    rotary,
    rotated,
    routing,
    scattering,
    suppression,
    updates,
)
from anycann.adapters.torch.operators.attention import inference_operators, layers, pages, training
from anycann.adapters.torch.operators.registry import OPERATORS

FAMILIES = (
    activations,
    boxes,
    dropout,
    formats,
    grouped,
    matrix,
    microscaling,
    normalisation,
    parallel,
    quantisation,
    quantised_products,
    quantised_units,
    recurrent,
    regions,
    reshaping,
    rotary,
    rotated,
    routing,
    scattering,
    suppression,
    updates,
    inference_operators,
    layers,
    pages,
    training,
)

# by name without overload: any of the overloads
PACKETS = {name.partition(".")[0]: operator for name, operator in OPERATORS.items()}

# what `torch_npu` has beside them
FUNCTIONS = formats.FUNCTIONS

__all__ = ["FAMILIES", "FUNCTIONS", "OPERATORS", "PACKETS"]
