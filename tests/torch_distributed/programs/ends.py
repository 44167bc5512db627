"""A collective that finishes in Python, on a thread of gloo's, and then the end of the program."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("hccl")
values = torch.ones(2, 2, device="npu")
gathered = torch.empty_like(values)
dist.all_to_all_single(gathered, values, async_op=True).wait()
print("RESULT", gathered.sum().item(), flush=True)
dist.destroy_process_group()
