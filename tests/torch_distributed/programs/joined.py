"""Joins by Ascend's variables, or by torchrun's; says which rank it is, of how many, and the sum of all ranks."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401


def say(line: str) -> None:
    """Write a line at once: the ranks share one pipe, and an unbuffered print writes its end apart."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


dist.init_process_group(backend="hccl")
values = torch.tensor([float(dist.get_rank())], device="npu")
dist.all_reduce(values)
say(f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {values.item()}")
both = dist.new_group(backend="cpu:gloo,npu:hccl")
host = torch.ones(1)
dist.all_reduce(host, group=both)
dist.all_reduce(values, group=both)
on_host = dist.new_group(backend="gloo")
dist.monitored_barrier(on_host)
say(f"again {host.item()} {values.item()}")
dist.destroy_process_group()
