"""Trains a BERT encoder for a task of two classes: AdamW with a linear schedule, mixed precision, gradients clipped.

python -m examples.torch.finetune_bert --epochs 6
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
import random

import torch
from torch import nn

from examples.torch.bert import Bert, Config, Tokenizer
from examples.torch.devices import best_device

GOOD = "good fine lovely bright pleasant clever".split()  # noqa: SIM905
BAD = "bad poor awful dull boring clumsy".split()  # noqa: SIM905
THINGS = "film story actor scene ending music".split()  # noqa: SIM905


@dataclass
class Outcome:
    """Losses by step, and the share of unseen sentences judged right."""

    losses: list[float]
    accuracy: float


def sentences(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Judgements, and whether each is good (1) or bad (0); "not" turns one round."""
    chance = random.Random(seed)
    texts, classes = [], []
    for _ in range(count):
        good, turned = chance.random() < 0.5, chance.random() < 0.3
        word = chance.choice(GOOD if good else BAD)
        texts.append(f"the {chance.choice(THINGS)} was {'not ' if turned else ''}{word} and the {chance.choice(THINGS)} too")
        classes.append(int(good != turned))
    return texts, classes


def main(given: Sequence[str] | None = None) -> Outcome:
    """Train, and judge sentences that were not seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--amp", choices=("fp16", "bf16"), nargs="?", const="fp16")
    options = parser.parse_args(given)
    device = best_device(options.device)
    torch.manual_seed(0)
    texts, classes = sentences(options.sentences, seed=1)
    tokenizer = Tokenizer(texts)
    config = Config(len(tokenizer.numbers), options.width, options.layers, options.width // 32, 4 * options.width, 64, 0.1)
    model = Bert(config, classes=2).to(device)
    losses = train(model, tokenizer, texts, torch.tensor(classes), options, device)
    unseen, truth = sentences(128, seed=2)
    accuracy = judge(model, tokenizer, unseen, torch.tensor(truth), device)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.3f} on sentences it has not seen")
    return Outcome(losses, accuracy)


def train(
    model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], classes: torch.Tensor, options: argparse.Namespace, device: torch.device
) -> list[float]:
    """The losses by step."""
    steps = options.epochs * (len(texts) // options.batch_size)
    optimizer = torch.optim.AdamW(parameter_groups(model), options.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / max(1, steps // 10), (steps - step) / steps))
    scaler = torch.amp.GradScaler(device.type, enabled=options.amp == "fp16")
    dtype = torch.bfloat16 if options.amp == "bf16" else torch.float16
    losses = []
    model.train()
    for _ in range(options.epochs):
        order = torch.randperm(len(texts))
        for start in range(0, len(texts) - options.batch_size + 1, options.batch_size):
            chosen = order[start : start + options.batch_size]
            tokens, mask = tokenizer([texts[index] for index in chosen.tolist()], 64)
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=dtype, enabled=options.amp is not None):
                loss = nn.functional.cross_entropy(model(tokens.to(device), mask.to(device)), classes[chosen].to(device))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            losses.append(loss.item())
    return losses


def parameter_groups(model: nn.Module) -> list[dict[str, object]]:
    """Weights decay; biases and the scales of normalisations do not."""
    named = list(model.named_parameters())
    decays = [parameter for _, parameter in named if parameter.dim() > 1]
    stays = [parameter for _, parameter in named if parameter.dim() <= 1]
    return [{"params": decays, "weight_decay": 0.01}, {"params": stays, "weight_decay": 0.0}]


def judge(model: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], classes: torch.Tensor, device: torch.device) -> float:
    """The share of `texts` judged right."""
    model.eval()
    tokens, mask = tokenizer(texts, 64)
    with torch.no_grad():
        judged = model(tokens.to(device), mask.to(device)).argmax(1).cpu()
    return float((judged == classes).float().mean())


if __name__ == "__main__":
    main()
