"""Pictures in the format of CIFAR-10 for Python: pickled batches with "data" (n, 3072) of bytes and "labels"."""

from __future__ import annotations

from pathlib import Path
import pickle
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

FOLDER = "cifar-10-batches-py"
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Cifar(Dataset[tuple[Tensor, int]]):
    """Pictures (3, 32, 32), normalised, and their classes; shifted and mirrored at random if `augment`."""

    def __init__(self, root: str | Path, train: bool, augment: bool = False) -> None:
        folder = Path(root) / FOLDER
        names = sorted(path.name for path in folder.glob("data_batch_*")) if train else ["test_batch"]
        if not names or not (folder / names[0]).exists():
            raise FileNotFoundError(f"no CIFAR-10 in {folder}; examples.torch.cifar.make writes a small one")
        batches = [_read(folder / name) for name in names]
        self.pictures = torch.from_numpy(np.concatenate([pictures for pictures, _ in batches]).reshape(-1, 3, 32, 32))
        self.classes = [label for _, labels in batches for label in labels]
        self.augment = augment
        self.mean, self.deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self.pictures[index]
        if self.augment:
            picture = _shifted_and_mirrored(picture)
        return (picture.float() / 255 - self.mean) / self.deviation, self.classes[index]


def _read(path: Path) -> tuple[Any, list[int]]:
    with path.open("rb") as file:
        batch = pickle.load(file, encoding="bytes")
    return batch[b"data"], list(batch[b"labels"])


def _shifted_and_mirrored(picture: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(picture, (4, 4, 4, 4))
    top, left = torch.randint(9, (2,)).tolist()
    shifted = padded[:, top : top + 32, left : left + 32]
    return shifted.flip(-1) if torch.rand(()) < 0.5 else shifted


def make(root: str | Path, count: int = 64, seed: int = 0) -> None:
    """Write a small data set in the same format: each class is a colour with a pattern and noise, so that a network can learn it."""
    folder = Path(root) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    patterns = np.random.default_rng(7).uniform(0, 255, (10, 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3)
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        labels = generator.integers(0, 10, count)
        pictures = patterns[labels] + generator.normal(0, 20, (count, 3, 32, 32))
        batch = {b"data": pictures.clip(0, 255).astype(np.uint8).reshape(count, 3072), b"labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch))
