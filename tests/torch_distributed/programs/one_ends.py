"""Rank 1 ends without a word, never comes, or sends something else; the others must not wait for ever."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

HOW = sys.argv[1]
RANK = int(os.environ["RANK"])

if HOW == "absent" and RANK == 1:
    sys.exit()
begun = time.monotonic()
try:
    dist.init_process_group("hccl")
    values = torch.ones(4 + RANK if HOW == "other_sizes" else 4, device="npu")
    dist.all_reduce(values, op=dist.ReduceOp.MAX if HOW == "other_reductions" and RANK else dist.ReduceOp.SUM)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL if HOW == "killed" else signal.SIGSTOP)
    begun = time.monotonic()
    dist.all_reduce(values)
    print("NO ERROR", flush=True)
except RuntimeError as error:
    print(f"{type(error).__name__} after {time.monotonic() - begun:.1f} s: {error}", flush=True)
os._exit(0)
