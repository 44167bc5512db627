"""All operators of `torch.ops.npu` and `torch.ops.atb`, one file a family. Importing this module registers them."""

from importlib import import_module

from anycann.adapters.torch.operators import formats, storages
from anycann.adapters.torch.operators.registry import OPERATORS

# in the order of the reference page
_FAMILIES = """
    accumulation activations block_quantisation boxes dropout exchange exchanged_products feed_forward formats gradients grouped
    grouped_units linear_attention losses matrix microscaling normalisation parallel quantisation quantised_products quantised_tails
    quantised_units recurrent regions reshaping rotary rotated routing routing_maps routing_quantised sampling scattering statistics
    suppression transformer_library updates attention.inference_operators attention.latent attention.layers attention.merging
    attention.pages attention.selected attention.selected_quantised attention.sequences attention.training
"""
FAMILIES = tuple(import_module(f"{__package__}.{name}") for name in _FAMILIES.split())

# by name without overload: any of the overloads
PACKETS = {name.partition(".")[0]: operator for name, operator in OPERATORS.items()}

# what `torch_npu` has beside them
FUNCTIONS = formats.FUNCTIONS | storages.FUNCTIONS

__all__ = ["FAMILIES", "FUNCTIONS", "OPERATORS", "PACKETS"]
