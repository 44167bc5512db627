"""ViT-B/16 (Dosovitskiy et al., 2020), BERT-base (Devlin et al., 2018) and MiniLM (Wang et al., 2020), which is BERT's architecture."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention with an additive mask, written out as published models write it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.heads, self.head_width).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[N, T, width] -> [N, T, width]; mask [N, 1, 1, T] is added to the scores."""
        query, key, value = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        scores = query @ key.transpose(-1, -2) * self.head_width**-0.5
        if mask is not None:
            scores = scores + mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        return self.output(mixed)


class Block(nn.Module):
    """Attention and a two-layer perceptron with GELU; normalised before (ViT) or after (BERT) each."""

    def __init__(self, width: int, heads: int, hidden: int, before: bool, epsilon: float):
        super().__init__()
        self.before = before
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=epsilon), nn.LayerNorm(width, eps=epsilon)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[N, T, width] -> [N, T, width]."""
        if self.before:
            x = x + self.attention(self.norm1(x), mask)
            return x + self._perceptron(self.norm2(x))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self._perceptron(x))

    def _perceptron(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class VisionTransformer(nn.Module):
    """ViT-B/16: [N, 3, 224, 224] -> logits [N, 1000]."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, 4 * width, before=True, epsilon=1e-6) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of an image batch."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    """BERT's encoder: tokens, mask and segments [N, T] int64 -> hidden states [N, T, width]."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, hidden: int = 3072, vocabulary: int = 30522):
        super().__init__()
        self.words, self.positions, self.segments = (nn.Embedding(n, width) for n in (vocabulary, 512, 2))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, before=False, epsilon=1e-12) for _ in range(layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """The last hidden state."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x = self.norm(self.words(input_ids) + self.positions(positions) + self.segments(token_type_ids))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for block in self.blocks:
            x = block(x, mask)
        return x


class SentenceEncoder(nn.Module):
    """all-MiniLM-L6-v2: BERT with 6 layers of 384, averaged over the tokens and scaled to length 1 -> [N, 384]."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = Bert(width=384, layers=6, heads=12, hidden=1536)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """One vector a sentence."""
        states = self.bert(input_ids, attention_mask, token_type_ids)
        weights = attention_mask[..., None].to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(mean, dim=1)
