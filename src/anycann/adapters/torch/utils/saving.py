"""`torch_npu.utils.save_async`: a checkpoint is written while training goes on."""

from __future__ import annotations

import io
import pickle
import threading
from typing import Any

import torch
from torch.serialization import DEFAULT_PROTOCOL


def save_async(
    obj: object,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    model: torch.nn.Module | None = None,
) -> None:
    """`torch.save(obj, f)` of the values of now, the file being written by a thread; the program ends after it.

    `model` names whose weights are saved: they are copied before this returns, so it may change at once. Raises RuntimeError for torch's
    older format.
    """
    if not _use_new_zipfile_serialization:
        raise RuntimeError('save_async with "_use_new_zipfile_serialization=False"; accepted: True, the format of torch since 1.6')
    taken = io.BytesIO()
    torch.save(obj, taken, pickle_module, pickle_protocol, True, _disable_byteorder_record)
    threading.Thread(target=_write, args=(taken, f), name="save_async").start()


def _write(taken: io.BytesIO, target: Any) -> None:
    if hasattr(target, "write"):
        target.write(taken.getbuffer())
        return
    with open(target, "wb") as file:
        file.write(taken.getbuffer())
