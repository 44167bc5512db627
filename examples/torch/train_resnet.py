"""ResNet-50 on CIFAR-10: warm-up and cosine schedule, label smoothing, mixed precision, graph mode, checkpoints, several ranks.

python -m examples.torch.train_resnet --data DIR --make-data --epochs 2
torchrun --nproc-per-node 2 -m examples.torch.train_resnet --data DIR --amp
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import contextlib
from dataclasses import dataclass
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from examples.torch import cifar
from examples.torch.devices import best_device, use
from examples.torch.resnet import RESNET_50, resnet


@dataclass
class Epoch:
    """What one epoch came to: mean loss over the training pictures, share of the test pictures named right."""

    number: int
    loss: float
    accuracy: float
    learning_rate: float


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder that holds cifar-10-batches-py")
    parser.add_argument("--make-data", action="store_true", help="write a small data set there first")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=128, help="of all ranks together")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--warm-up-epochs", type=float, default=5)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--amp", choices=("fp16", "bf16"), nargs="?", const="fp16")
    parser.add_argument("--graph", action="store_true", help="torch.compile on the npu")
    parser.add_argument("--layers", type=int, nargs=4, default=RESNET_50)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, help="file to write after each epoch, and to go on from if it is there")
    parser.add_argument("--stop-after", type=int, help="end after this many epochs, as an interrupted run does")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


def learning_rate(step: int, steps: int, warm_up_steps: int) -> float:
    """The factor of the learning rate at `step`: rising in a line, then falling as a cosine to 0."""
    if step < warm_up_steps:
        return (step + 1) / warm_up_steps
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up_steps) / max(1, steps - warm_up_steps)))


class Trainer:
    """A model with what trains it."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        torch.manual_seed(options.seed)
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.train_data = cifar.Cifar(options.data, train=True, augment=True)
        self.test_data = cifar.Cifar(options.data, train=False)
        self.sampler: Any = DistributedSampler(self.train_data, shuffle=True, seed=options.seed) if ranks > 1 else None
        self.loader = self._loader(self.train_data, options.batch_size // ranks, self.sampler)
        self.model = resnet(10, options.layers, options.width).to(device)
        self.ready = self._prepared(ranks)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=options.label_smoothing).to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), options.learning_rate, momentum=0.9, weight_decay=options.weight_decay, nesterov=True
        )
        steps, warm_up = options.epochs * len(self.loader), int(options.warm_up_epochs * len(self.loader))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: learning_rate(step, steps, warm_up))
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.amp == "fp16")
        self.history: list[Epoch] = []

    def _loader(self, data: Any, batch_size: int, sampler: Any = None) -> Any:
        return DataLoader(
            data,
            batch_size,
            shuffle=sampler is None and data is self.train_data,
            sampler=sampler,
            num_workers=self.options.workers,
            pin_memory=self.device.type != "cpu",
            drop_last=data is self.train_data,
        )

    def _prepared(self, ranks: int) -> Any:
        """The model as it is called: over all ranks, compiled."""
        ready: Any = self.model
        if ranks > 1:
            ready = DistributedDataParallel(ready, device_ids=[self.device.index] if self.device.type != "cpu" else None)
        return torch.compile(ready, backend="npu") if self.options.graph else ready

    def _precision(self) -> Any:
        if self.options.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype={"fp16": torch.float16, "bf16": torch.bfloat16}[self.options.amp])

    def train_epoch(self, number: int) -> float:
        """Mean loss over one pass through the training pictures."""
        self.ready.train()
        if self.sampler is not None:
            self.sampler.set_epoch(number)
        total, count = torch.zeros((), device=self.device), 0
        for pictures, classes in self.loader:
            pictures, classes = pictures.to(self.device, non_blocking=True), classes.to(self.device, non_blocking=True)
            self.optimizer.zero_grad()
            with self._precision():
                loss = self.criterion(self.ready(pictures), classes)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()
            total += loss.detach()
            count += 1
        mean = total / count
        if self.sampler is not None:
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        return float(mean)

    def accuracy(self) -> float:
        """The share of test pictures named right."""
        self.model.eval()
        right = 0
        with torch.no_grad():
            for pictures, classes in self._loader(self.test_data, self.options.batch_size):
                right += int((self.model(pictures.to(self.device)).argmax(1) == classes.to(self.device)).sum())
        return right / len(self.test_data)

    def run(self) -> list[Epoch]:
        """All epochs from the checkpoint's on."""
        last = self.options.epochs if self.options.stop_after is None else self.options.stop_after
        for number in range(len(self.history), last):
            loss = self.train_epoch(number)
            self.history.append(Epoch(number, loss, self.accuracy(), self.schedule.get_last_lr()[0]))
            if first_rank():
                print(f"epoch {number}: loss {loss:.4f}, accuracy {self.history[-1].accuracy:.3f}", flush=True)
                self.save()
        return self.history

    def save(self) -> None:
        """Write the checkpoint, all of it or nothing."""
        if self.options.checkpoint is None:
            return
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule, "scaler": self.scaler}
        state = {name: part.state_dict() for name, part in parts.items()}
        partial = self.options.checkpoint.with_suffix(".partial")
        torch.save({**state, "history": self.history, "random": torch.get_rng_state()}, partial)
        os.replace(partial, self.options.checkpoint)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if self.options.checkpoint is None or not self.options.checkpoint.exists():
            return
        state = torch.load(self.options.checkpoint, map_location=self.device, weights_only=False)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self.history = state["history"]
        torch.set_rng_state(state["random"].cpu())


def first_rank() -> bool:
    """Whether this process speaks for all."""
    return not dist.is_initialized() or dist.get_rank() == 0


def main(given: Sequence[str] | None = None) -> list[Epoch]:
    """Train, and return what each epoch came to."""
    options = arguments(given)
    device = best_device(options.device, int(os.environ.get("LOCAL_RANK", 0)))
    use(device)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group({"npu": "hccl", "cuda": "nccl", "cpu": "gloo"}[device.type])
    if options.make_data and first_rank():
        cifar.make(options.data)
    if dist.is_initialized():
        dist.barrier()
    trainer = Trainer(options, device)
    trainer.resume()
    try:
        return trainer.run()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
