"""The backend "hccl" of torch.distributed: torch's own process groups and gloo, on the memory of npu tensors, without a copy.

An npu's memory is host memory, so there is nothing for nccl to do here, GPU or not. `backend.py` registers the backend, `kernels.py` takes
each collective of an npu tensor to gloo, `travel.py` says how a tensor travels whose dtype gloo lacks.
"""

from __future__ import annotations

from types import ModuleType

import torch.distributed


def install(torch_npu: ModuleType) -> None:
    """Make torch.distributed know "hccl", for npu tensors. Does nothing if torch was built without torch.distributed."""
    if torch.distributed.is_available():
        from anycann.adapters.torch.distributed import backend

        backend.install(torch_npu)
