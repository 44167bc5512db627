"""Batch normalisation of `torch_npu.contrib.module` that counts its batches in 32 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _CountsIn32Bits(nn.modules.batchnorm._BatchNorm):
    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        _count_in_32_bits(self)


def _count_in_32_bits(norm: nn.Module) -> None:
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked = torch.as_tensor(norm.num_batches_tracked, dtype=torch.int32)


class FastBatchNorm1d(_CountsIn32Bits, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` with an int32 count of batches."""


class FastBatchNorm2d(_CountsIn32Bits, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` with an int32 count of batches."""


class FastBatchNorm3d(_CountsIn32Bits, nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` with an int32 count of batches."""


class FastSyncBatchNorm(_CountsIn32Bits, nn.SyncBatchNorm):
    """`torch.nn.SyncBatchNorm` with an int32 count of batches."""

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Any = None) -> nn.Module:
        """The module with batch normalisations over all processes in place of its own; their parameters and statistics stay."""
        converted = nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)
        for part in converted.modules():
            if type(part) is nn.SyncBatchNorm:
                part.__class__ = cls
                _count_in_32_bits(part)
        return converted
