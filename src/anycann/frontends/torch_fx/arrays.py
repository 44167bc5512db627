"""Tensors as arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a tensor of the host as an array, row-major; a copy if it lies otherwise."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
        return np.asarray(tensor.numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())
