"""A program that never says which npu it is on: a mesh chooses by the rank on its server, as torch does for GPUs."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import torch_npu  # noqa: F401

mesh = init_device_mesh("npu", (2,))
chosen = torch.npu.current_device()
torch.npu.set_device(5)
init_device_mesh("npu", (2,))
print(f"rank {dist.get_rank()} on {chosen}, then {torch.npu.current_device()}, backend {dist.get_backend()}")
dist.destroy_process_group()
