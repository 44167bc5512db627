"""Which tokens a model may say next, by their logits; where the next step reads and writes; and random numbers."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import composed, require, sizes


@composed("npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor")
def top_k_top_p(logits: torch.Tensor, p: torch.Tensor | None = None, k: torch.Tensor | None = None) -> torch.Tensor:
    """logits (B, V) with -inf for all but the k (B,) largest, and of those all but the fewest that have more than p (B,) of the softmax.

    Equal to the k-th largest stay; the largest stays always.
    """
    operator = "npu_top_k_top_p"
    rows = logits.shape[:1]
    require(logits.dim() == 2 and all(x is None or x.shape == rows for x in (p, k)), operator, sizes(logits, p, k), "(B, V), (B,) and (B,)")
    ordered, places = logits.sort(dim=-1, stable=True)
    if k is not None:
        least = ordered.gather(1, (logits.shape[1] - k.long())[:, None])
        ordered = ordered.masked_fill(ordered < least, -torch.inf)
    if p is not None:
        running = ordered.float().softmax(-1).cumsum(-1)
        left_out = running <= 1 - p.float()[:, None]
        left_out[:, -1] = False
        ordered = ordered.masked_fill(left_out, -torch.inf)
    return torch.empty_like(ordered).scatter(-1, places, ordered)


@composed("npu_sim_exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)", differentiable=False)
def sim_exponential_(self: torch.Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fills the tensor with numbers of the exponential distribution of rate lambd."""
    return self.exponential_(lambd, generator=generator)


@composed(
    "npu_advance_step_flashattn(Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) input_positions, Tensor(c!) seq_lens, "
    "Tensor(d!) slot_mapping, Tensor block_tables, int num_seqs, int num_queries, int block_size, *, Tensor? spec_token=None, "
    "Tensor? accepted_num=None) -> ()",
    differentiable=False,
)
def advance_step_flashattn(
    input_tokens: torch.Tensor, sampled_token_ids: torch.Tensor, input_positions: torch.Tensor, seq_lens: torch.Tensor,
    slot_mapping: torch.Tensor, block_tables: torch.Tensor, num_seqs: int, num_queries: int, block_size: int,
    *, spec_token: torch.Tensor | None = None, accepted_num: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """A step further, as vLLM's operator of that name: the tokens that were said become the inputs, at the next positions, whose slots in
    the cache the block table (sequences, blocks) tells.

    Without guesses each of the first num_queries sequences goes one token on, the others become padding (token 0 at 0, slot -1). With
    spec_token (num_seqs, guesses) each has its last token said (the last before -1) and its guesses, accepted_num (num_seqs,) + 1 on.
    """
    name = "npu_advance_step_flashattn"
    require((spec_token is None) == (accepted_num is None), name, "one of spec_token and accepted_num alone", "both or none")
    if spec_token is not None and accepted_num is not None:
        each = 1 + spec_token.shape[1]
        input_positions.add_(accepted_num.repeat_interleave(each) + 1)
        seq_lens.copy_(input_positions + 1)
        said = (sampled_token_ids >= 0).to(torch.int8).cummin(1).values.sum(1, keepdim=True)
        input_tokens.copy_(torch.cat((sampled_token_ids.gather(1, said - 1), spec_token), 1).flatten())
        rows = torch.arange(num_seqs, device=seq_lens.device).repeat_interleave(each)
        slot_mapping.copy_(block_tables[rows, input_positions // block_size] * block_size + input_positions % block_size)
        return
    input_tokens[:num_queries] = sampled_token_ids[:num_queries, 0]
    positions = seq_lens[:num_queries].long()
    rows = torch.arange(num_queries, device=seq_lens.device)
    slot_mapping[:num_queries] = block_tables[rows, positions // block_size] * block_size + positions % block_size
    input_positions[:num_queries] = positions
    seq_lens[:num_queries] += 1
    input_tokens[num_queries:num_seqs], input_positions[num_queries:num_seqs], slot_mapping[num_queries:num_seqs] = 0, 0, -1
