"""Importing this module makes the cases of every family."""

from tests.torch_operators import (
    activation_cases,
    attention_cases,
    inference_cases,
    layer_cases,
    microscaling_cases,
    movement_cases,
    normalisation_cases,
    product_cases,
    routing_cases,
    state_cases,
    vision_cases,
)

__all__ = [
    "activation_cases",
    "attention_cases",
    "inference_cases",
    "layer_cases",
    "microscaling_cases",
    "movement_cases",
    "normalisation_cases",
    "product_cases",
    "routing_cases",
    "state_cases",
    "vision_cases",
]
