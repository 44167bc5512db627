"""TorchScript: its older executor fuses operators on devices that it knows and stops at others, so scripts stay with the newer one.

Language models switch to the older executor when they are imported, for the fusion it does on GPUs.
"""

from __future__ import annotations

import torch


def install() -> None:
    """Keep the newer executor, whatever programs choose."""
    choose = torch._C._jit_set_profiling_executor

    def keep(profiling: bool) -> bool:
        return choose(True)

    torch._C._jit_set_profiling_executor = keep
