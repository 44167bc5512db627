"""A BERT encoder (Devlin and others, 2018) with a head for classes, and the smallest tokenizer that serves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PADDING, UNKNOWN, CLASSIFY, SEPARATE = range(4)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclass(frozen=True)
class Config:
    """The sizes; the defaults are those of BERT-base."""

    words: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    longest: int = 512
    dropout: float = 0.1


class Tokenizer:
    """Words between blanks, by their place in a vocabulary."""

    def __init__(self, sentences: Sequence[str]) -> None:
        words = dict.fromkeys(word for sentence in sentences for word in sentence.lower().split())
        self.numbers = {word: number for number, word in enumerate((*SPECIAL, *words))}

    def __call__(self, sentences: Sequence[str], longest: int) -> tuple[Tensor, Tensor]:
        """Numbers (n, length) and which of them are words (n, length)."""
        rows = [[CLASSIFY, *(self.numbers.get(word, UNKNOWN) for word in text.lower().split()), SEPARATE][:longest] for text in sentences]
        length = max(len(row) for row in rows)
        tokens = torch.tensor([row + [PADDING] * (length - len(row)) for row in rows])
        return tokens, tokens != PADDING


class Bert(nn.Module):
    """Logits (n, classes) from tokens (n, length) and the mask of those that count."""

    def __init__(self, config: Config, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(config.words, config.width, padding_idx=PADDING)
        self.places = nn.Embedding(config.longest, config.width)
        self.kinds = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)
        layer = nn.TransformerEncoderLayer(config.width, config.heads, config.hidden, config.dropout, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(config.width, config.width)
        self.classify = nn.Linear(config.width, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        values = self.words(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens))
        values = self.encoder(self.dropout(self.norm(values)), src_key_padding_mask=~mask)
        return self.classify(self.dropout(torch.tanh(self.pooler(values[:, 0]))))
