"""CLIP (Radford and others, 2021): a picture and texts become vectors, and the text that fits best names the picture.

    python -m examples.torch.clip --model FILE --make-model

`--make-model` builds a small model here, trains it on coloured shapes and writes it to FILE; without it FILE is loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from examples.torch.bert import Tokenizer
from examples.torch.devices import best_device

COLOURS = {"red": (1.0, 0.1, 0.1), "green": (0.1, 1.0, 0.1), "blue": (0.1, 0.1, 1.0), "yellow": (1.0, 1.0, 0.1)}
SHAPES = ("square", "circle", "cross")
TEXTS = [f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES]


@dataclass(frozen=True)
class Config:
    """The sizes; `words` is that of the tokenizer."""

    words: int
    width: int = 64
    layers: int = 2
    heads: int = 2
    picture: int = 32
    patch: int = 8
    longest: int = 8
    joint: int = 32


class Clip(nn.Module):
    """A picture encoder and a text encoder with vectors of one length."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.picture_class = nn.Parameter(torch.zeros(1, 1, config.width))
        self.picture_places = nn.Parameter(torch.randn(1, (config.picture // config.patch) ** 2 + 1, config.width) * 0.02)
        self.picture_encoder = _encoder(config)
        self.picture_out = nn.Linear(config.width, config.joint, bias=False)
        self.words = nn.Embedding(config.words, config.width)
        self.text_places = nn.Parameter(torch.randn(1, config.longest, config.width) * 0.02)
        self.text_encoder = _encoder(config)
        self.text_out = nn.Linear(config.width, config.joint, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))  # log(1 / 0.07)

    def encode_picture(self, pictures: Tensor) -> Any:
        """Unit vectors (n, joint) of pictures (n, 3, size, size)."""
        values = self.patches(pictures).flatten(2).transpose(1, 2)
        values = torch.cat([self.picture_class.expand(len(values), -1, -1), values], 1) + self.picture_places
        return nn.functional.normalize(self.picture_out(self.picture_encoder(values)[:, 0]), dim=-1)

    def encode_text(self, tokens: Tensor, mask: Tensor) -> Any:
        """Unit vectors (n, joint) of tokens (n, length)."""
        values = self.words(tokens) + self.text_places[:, : tokens.shape[1]]
        return nn.functional.normalize(self.text_out(self.text_encoder(values, src_key_padding_mask=~mask)[:, 0]), dim=-1)

    def forward(self, pictures: Tensor, tokens: Tensor, mask: Tensor) -> Any:
        """How well each picture (rows) fits each text (columns)."""
        return self.logit_scale.exp() * self.encode_picture(pictures) @ self.encode_text(tokens, mask).t()


def _encoder(config: Config) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        config.width, config.heads, 4 * config.width, 0.0, "gelu", batch_first=True, norm_first=True
    )  # before, as in CLIP
    return nn.TransformerEncoder(layer, config.layers, nn.LayerNorm(config.width), enable_nested_tensor=False)


def draw(text: str, generator: torch.Generator, size: int = 32) -> Tensor:
    """A picture (3, size, size) of what `text` says, somewhere, on a dark ground with noise."""
    _, colour, shape = text.split()
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    top, left = torch.randint(10, size - 10, (2,), generator=generator).tolist()
    down, right = (rows - top).abs(), (columns - left).abs()
    masks = {
        "square": (down < 7) & (right < 7),
        "circle": down**2 + right**2 < 64,
        "cross": ((down < 2) | (right < 2)) & (down < 9) & (right < 9),
    }
    picture = torch.rand(3, size, size, generator=generator) * 0.2
    return torch.where(masks[shape], torch.tensor(COLOURS[colour]).view(3, 1, 1), picture)


def build(device: torch.device, steps: int, seed: int = 0) -> tuple[Clip, Tokenizer]:
    """A model trained here for `steps`: pictures and texts of a batch are to find each other."""
    torch.manual_seed(seed)
    generator, tokenizer = torch.Generator().manual_seed(seed), Tokenizer(TEXTS)
    model = Clip(Config(len(tokenizer.numbers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    tokens, mask = (tensor.to(device) for tensor in tokenizer(TEXTS, model.config.longest))
    truth = torch.arange(len(TEXTS), device=device)
    for _ in range(steps):
        pictures = torch.stack([draw(text, generator) for text in TEXTS]).to(device)
        logits = model(pictures, tokens, mask)
        loss = (nn.functional.cross_entropy(logits, truth) + nn.functional.cross_entropy(logits.t(), truth)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), tokenizer


def save(model: Clip, tokenizer: Tokenizer, path: Path) -> None:
    """Write sizes, vocabulary and weights."""
    torch.save({"config": asdict(model.config), "words": list(tokenizer.numbers), "weights": model.state_dict()}, path)


def load(path: Path, device: torch.device) -> tuple[Clip, Tokenizer]:
    """What `save` wrote."""
    kept = torch.load(path, map_location=device, weights_only=True)
    tokenizer = Tokenizer([])
    tokenizer.numbers = {word: number for number, word in enumerate(kept["words"])}
    model = Clip(Config(**kept["config"])).to(device)
    model.load_state_dict(kept["weights"])
    return model.eval(), tokenizer


def name_pictures(model: Clip, tokenizer: Tokenizer, pictures: Tensor, texts: Sequence[str]) -> Tensor:
    """The probability of each text (columns) for each picture (rows)."""
    device = model.logit_scale.device
    tokens, mask = tokenizer(texts, model.config.longest)
    with torch.inference_mode():
        return torch.as_tensor(model(pictures.to(device), tokens.to(device), mask.to(device)).softmax(-1))


def main(given: Sequence[str] | None = None) -> float:
    """Name pictures that were not seen; the share named right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--make-model", action="store_true")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(given)
    device = best_device(options.device)
    if options.make_model:
        save(*build(device, options.steps), options.model)
    model, tokenizer = load(options.model, device)
    generator = torch.Generator().manual_seed(99)
    wanted = [text for text in TEXTS for _ in range(4)]
    probabilities = name_pictures(model, tokenizer, torch.stack([draw(text, generator) for text in wanted]), TEXTS).cpu()
    named = [TEXTS[index] for index in probabilities.argmax(1).tolist()]
    right = sum(one == other for one, other in zip(named, wanted, strict=True)) / len(wanted)
    for text, found, row in list(zip(wanted, named, probabilities, strict=True))[:: len(wanted) // 4]:
        print(f"{text}: {found} ({row.max():.2f})")
    print(f"{right:.2f} of {len(wanted)} pictures named right on {device}")
    return right


if __name__ == "__main__":
    main()
