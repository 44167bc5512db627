"""Attention with a state instead of keys (gated delta rule, arXiv:2412.06464), and the short convolution before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, require, sizes

_RULE = "Tensor query, Tensor key, Tensor value, {state}, *, Tensor? beta=None, float? scale=None"
_PLACES = (
    "Tensor? actual_seq_lengths=None, Tensor? ssm_state_indices=None, Tensor? num_accepted_tokens=None, Tensor? g=None, Tensor? gk=None"
)
_Optional: TypeAlias = torch.Tensor | None
_NAME = "npu_recurrent_gated_delta_rule"


class _Tokens:
    """The operands of every token, as wide as is computed: q, k (T, Nv, Dk), v (T, Nv, Dv), beta (T, Nv, 1), decay (T, Nv, 1 or Dk)."""

    def __init__(
        self, name: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, beta: _Optional, scale: float, *decays: _Optional
    ):
        fits = query.shape == key.shape and query.dim() == value.dim() == 3 and len(query) == len(value)
        accepted = "(T, Nk, Dk), (T, Nk, Dk) and (T, Nv, Dv), Nv a multiple of Nk"
        require(fits and value.shape[1] % query.shape[1] == 0, name, sizes(query, key, value), accepted)
        group = value.shape[1] // query.shape[1]
        self.q, self.k = (wide(x).repeat_interleave(group, 1) for x in (query, key))
        self.q, self.v, self.dtype = self.q * scale, wide(value), value.dtype
        self.beta = torch.ones_like(self.v[..., :1]) if beta is None else wide(beta)[..., None]
        self.decay = torch.ones_like(self.v[..., :1])
        for exponent in decays:
            if exponent is not None:
                factor = wide(exponent).exp()
                self.decay = self.decay * (factor if factor.dim() == 3 else factor[..., None])

    def steps(self, state: torch.Tensor, begin: int, end: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The result (Nv, Dv) and the state (Nv, Dv, Dk) behind each token of one sequence."""
        for t in range(begin, end):
            state = state * self.decay[t][:, None]
            change = self.beta[t] * (self.v[t] - (state @ self.k[t][..., None])[..., 0])
            state = state + change[..., None] * self.k[t][:, None]
            yield (state @ self.q[t][..., None])[..., 0], state


def _check_lengths(name: str, lengths: list[int], value: torch.Tensor) -> None:
    """Tokens behind the last sequence have results of zeros."""
    require(sum(lengths) <= len(value), name, f"{sum(lengths)} tokens in actual_seq_lengths", f"at most the {len(value)} given")


def _recurrent(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, state: torch.Tensor, beta: _Optional, scale: float | None,
    actual_seq_lengths: _Optional, ssm_state_indices: _Optional, num_accepted_tokens: _Optional, g: _Optional, gk: _Optional,
) -> torch.Tensor:  # fmt: skip
    """(T, Nv, Dv); the state behind token t is written to entry ssm_state_indices[t]."""
    given = actual_seq_lengths is not None and ssm_state_indices is not None
    require(given, _NAME, "no actual_seq_lengths or no ssm_state_indices", "the lengths (B,) of the sequences, and an entry for each token")
    assert actual_seq_lengths is not None
    assert ssm_state_indices is not None
    tokens = _Tokens(_NAME, query, key, value, beta, query.shape[-1] ** -0.5 if scale is None else scale, g, gk)
    lengths, places = actual_seq_lengths.tolist(), ssm_state_indices.tolist()
    accepted = [1] * len(lengths) if num_accepted_tokens is None else num_accepted_tokens.tolist()
    _check_lengths(_NAME, lengths, value)
    found, begin = torch.zeros_like(tokens.v), 0
    for length, count in zip(lengths, accepted, strict=True):
        first = wide(state[places[begin + count - 1]]) if length else state[:0]
        for t, (result, then) in enumerate(tokens.steps(first, begin, begin + length), begin):
            state[places[t]] = then.to(state.dtype)
            found[t] = result
        begin += length
    return found.to(value.dtype)


@composed(f"{_NAME}({_RULE.format(state='Tensor(a!) state')}, {_PLACES}) -> Tensor", differentiable=False)
def recurrent_gated_delta_rule(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, state: torch.Tensor, *, beta: _Optional = None, scale: float | None = None,
    actual_seq_lengths: _Optional = None, ssm_state_indices: _Optional = None, num_accepted_tokens: _Optional = None,
    g: _Optional = None, gk: _Optional = None,
) -> torch.Tensor:  # fmt: skip
    """S = a S + beta (v - a S k) k', o = S q scale, with a = exp(g) exp(gk), for sequences one behind another.

    q, k (T, Nk, Dk), v (T, Nv, Dv), states (entries, Nv, Dv, Dk), which are written. A sequence begins with the state of the last token of
    it that was accepted before.
    """
    return _recurrent(query, key, value, state, beta, scale, actual_seq_lengths, ssm_state_indices, num_accepted_tokens, g, gk)


@composed(f"{_NAME}_functional({_RULE.format(state='Tensor state')}, {_PLACES}) -> (Tensor, Tensor)", differentiable=False)
def recurrent_gated_delta_rule_functional(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, state: torch.Tensor, *, beta: _Optional = None, scale: float | None = None,
    actual_seq_lengths: _Optional = None, ssm_state_indices: _Optional = None, num_accepted_tokens: _Optional = None,
    g: _Optional = None, gk: _Optional = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """`npu_recurrent_gated_delta_rule`, and the states in a new tensor."""
    written = state.clone()
    given = query, key, value, written, beta, scale, actual_seq_lengths, ssm_state_indices, num_accepted_tokens, g, gk
    return _recurrent(*given), written


@composed(
    "npu_chunk_gated_delta_rule(Tensor query, Tensor key, Tensor value, *, Tensor? beta=None, Tensor? initial_state=None, "
    "Tensor? actual_seq_lengths=None, float? scale=None, Tensor? g=None) -> (Tensor, Tensor)",
    differentiable=False,
)
def chunk_gated_delta_rule(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, beta: _Optional = None, initial_state: _Optional = None,
    actual_seq_lengths: _Optional = None, scale: float | None = None, g: _Optional = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(o (T, Nv, Dv), the last state of each sequence (B, Nv, Dv, Dk)) of the same rule from initial_state; scale is 1 if not given."""
    name = "npu_chunk_gated_delta_rule"
    given = beta is not None and initial_state is not None and actual_seq_lengths is not None
    require(given, name, "beta, initial_state or actual_seq_lengths is not given", "all three")
    assert initial_state is not None
    assert actual_seq_lengths is not None
    tokens = _Tokens(name, query, key, value, beta, 1.0 if scale is None else scale, g)
    lengths = actual_seq_lengths.tolist()
    _check_lengths(name, lengths, value)
    found, last, begin = torch.zeros_like(tokens.v), wide(initial_state).clone(), 0
    for number, (state, length) in enumerate(zip(initial_state, lengths, strict=True)):
        for t, (result, then) in enumerate(tokens.steps(wide(state), begin, begin + length), begin):
            found[t], last[number] = result, then
        begin += length
    return found.to(value.dtype), last.to(initial_state.dtype)


@composed("npu_masked_causal_conv1d(Tensor input, Tensor weight, *, Tensor? mask=None) -> Tensor")
def masked_causal_conv1d(input: torch.Tensor, weight: torch.Tensor, *, mask: _Optional = None) -> torch.Tensor:
    """Of each channel of input (S, B, H), over time: the sum of weight[j] (W, H) times the input W - 1 - j steps before, zeros before the
    first; zeros where the mask (B, S) is False."""
    fits = input.dim() == 3 and weight.dim() == 2 and weight.shape[1] == input.shape[2]
    require(fits, "npu_masked_causal_conv1d", sizes(input, weight), "(S, B, H) and (W, H)")
    padded = torch.nn.functional.pad(wide(input), (0, 0, 0, 0, len(weight) - 1, 0))
    total = sum(padded[j : j + len(input)] * wide(row) for j, row in enumerate(weight))
    assert isinstance(total, torch.Tensor)
    kept = total if mask is None else total.masked_fill(~mask.t()[..., None], 0)
    return kept.to(input.dtype)
