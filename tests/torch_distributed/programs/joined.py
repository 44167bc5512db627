"""Joins by Ascend's variables, or by torchrun's; says which rank it is, of how many, and the sum of all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

dist.init_process_group(backend="hccl")
values = torch.tensor([float(dist.get_rank())], device="npu")
dist.all_reduce(values)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {values.item()}", flush=True)
both = dist.new_group(backend="cpu:gloo,npu:hccl")
host = torch.ones(1)
dist.all_reduce(host, group=both)
dist.all_reduce(values, group=both)
on_host = dist.new_group(backend="gloo")
dist.monitored_barrier(on_host)
print(f"again {host.item()} {values.item()}", flush=True)
dist.destroy_process_group()
