"""What the recurrent operators share: activation functions by name, and running a cell over sequences of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from anycann.graph.reference.base import sigmoid
from anycann.support.errors import UnsupportedError

Activation: TypeAlias = Callable[[np.ndarray], np.ndarray]
State: TypeAlias = tuple[np.ndarray, ...]  # the hidden state [batch, hidden] first
Step: TypeAlias = Callable[[np.ndarray, State], State]

# name -> default alpha and beta (None: the function has none), and the function of x, alpha, beta
ACTIVATIONS: dict[str, tuple[float | None, float | None, Callable[[np.ndarray, float, float], np.ndarray]]] = {
    "relu": (None, None, lambda x, a, b: np.maximum(x, 0)),
    "tanh": (None, None, lambda x, a, b: np.tanh(x)),
    "sigmoid": (None, None, lambda x, a, b: sigmoid(x)),
    "softsign": (None, None, lambda x, a, b: x / (1 + np.abs(x))),
    "softplus": (None, None, lambda x, a, b: np.logaddexp(x, 0)),
    "affine": (1.0, 0.0, lambda x, a, b: a * x + b),
    "leakyrelu": (0.01, None, lambda x, a, b: np.where(x < 0, a * x, x)),
    "thresholdedrelu": (1.0, None, lambda x, a, b: np.where(x > a, x, 0)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "elu": (1.0, None, lambda x, a, b: np.where(x < 0, a * np.expm1(x), x)),
}


def activation_functions(attributes: Mapping[str, Any], defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The functions of each direction, as the attributes `activations`, `activation_alpha` and `activation_beta` say.

    Parameters go, in order, to the functions that have them. More names than the directions need are ignored: the schema's default of RNN
    has two. Raises UnsupportedError for a name no operator defines, or too few.
    """
    needed = len(defaults) * directions
    given = [str(name).lower() for name in attributes.get("activations") or ()][:needed] or list(defaults) * directions
    alphas, betas = attributes.get("activation_alpha"), attributes.get("activation_beta")
    if set(given) - set(ACTIVATIONS) or len(given) < needed:
        raise UnsupportedError(f"activations {given} are not implemented; {len(defaults)} a direction of {sorted(ACTIVATIONS)} are")
    left_alphas, left_betas = list(alphas or ()), list(betas or ())
    functions: list[Activation] = []
    for name in given:
        alpha, beta, function = ACTIVATIONS[name]
        alpha = left_alphas.pop(0) if alpha is not None and left_alphas else alpha
        beta = left_betas.pop(0) if beta is not None and left_betas else beta
        functions.append(_bound(function, alpha or 0.0, beta or 0.0))
    return [functions[start : start + len(defaults)] for start in range(0, len(functions), len(defaults))]


def _bound(function: Callable[[np.ndarray, float, float], np.ndarray], alpha: float, beta: float) -> Activation:
    return lambda x: np.asarray(function(x, alpha, beta), x.dtype)


def unroll(step: Step, x: np.ndarray, lengths: np.ndarray, reverse: bool, state: State) -> tuple[np.ndarray, State]:
    """`step` over x [steps, batch, ...]: Y [steps, batch, hidden] and the last state.

    A sequence keeps its state after its last step, where Y is zero. `reverse` runs each sequence from its own end.
    """
    y = np.zeros((len(x), *state[0].shape), state[0].dtype)
    for number in range(int(lengths.max(initial=0))):
        running = number < lengths
        source = np.where(running, lengths - 1 - number if reverse else number, 0)
        new = step(x[source, np.arange(x.shape[1])], state)
        state = tuple(np.where(running[:, None], after, before).astype(before.dtype) for after, before in zip(new, state, strict=True))
        rows = np.nonzero(running)[0]
        y[source[rows], rows] = state[0][rows]
    return y, state
