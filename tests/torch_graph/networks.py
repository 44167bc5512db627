"""Small networks of the kinds that people train: residual, vision transformer, BERT, encoder with dropout."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out))
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.across = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.across(x))


class ResNet(nn.Module):
    def __init__(self, width: int = 8, classes: int = 10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Residual(width, width, 1), Residual(width, 2 * width, 2))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, first: bool):
        super().__init__()
        self.heads, self.first = heads, first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def attend(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        batch, steps, width = x.shape
        query, key, value = self.qkv(x).view(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.dropout(self.out(found.transpose(1, 2).reshape(batch, steps, width)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.first:
            x = x + self.attend(self.norms[0](x), mask)
            return x + self.dropout(self.mlp(self.norms[1](x)))
        x = self.norms[0](x + self.attend(x, mask))
        return self.norms[1](x + self.dropout(self.mlp(x)))


class ViT(nn.Module):
    def __init__(self, size: int = 32, patch: int = 8, width: int = 32, layers: int = 2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList([Encoder(width, 4, 0.0, True) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    def __init__(self, words: int = 50, width: int = 32, layers: int = 2):
        super().__init__()
        self.words, self.positions, self.kinds = nn.Embedding(words, width), nn.Embedding(64, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Encoder(width, 4, 0.0, False) for _ in range(layers)])
        self.pool = nn.Linear(width, width)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(places)[None] + self.kinds(torch.zeros_like(ids)))
        masked = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, masked)
        return x, torch.tanh(self.pool(x[:, 0]))


class Sentences(nn.Module):
    """An encoder with dropout."""

    def __init__(self, words: int = 50, width: int = 32):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Encoder(width, 4, 0.1, True) for _ in range(2)])
        self.head = nn.Linear(width, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def images(count: int = 2, size: int = 32) -> tuple[torch.Tensor, ...]:
    return (torch.randn(count, 3, size, size),)


def sentences(count: int = 2, length: int = 12) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 50, (count, length)),)


def masked_sentences(count: int = 2, length: int = 12) -> tuple[torch.Tensor, ...]:
    mask = torch.ones(count, length, dtype=torch.int64)
    mask[0, length // 2 :] = 0
    return (*sentences(count, length), mask)


NETWORKS = {
    "resnet": (ResNet, images), "vit": (ViT, images), "bert": (Bert, masked_sentences), "sentences": (Sentences, sentences),
}  # fmt: skip
