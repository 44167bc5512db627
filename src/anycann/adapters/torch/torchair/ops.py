"""`torchair.ops`: events and streams of graphs, of which there is one here that keeps the order of the program; and printing."""

from __future__ import annotations

from collections.abc import Sequence
import importlib
from typing import Any

import torch


def npu_create_tagged_event(tag: str) -> str:
    """An event of that name."""
    return tag


def npu_tagged_event_record(event: Any) -> None:
    """The event happens here."""


def npu_tagged_event_wait(event: Any) -> None:
    """What follows is behind the event, as it is in the program."""


def npu_record_tagged_stream(input: Any, tagged_stream: str) -> None:
    """`input` is used by another stream: its memory lives as long as it does."""


def record() -> None:
    """A point that others wait for."""


def wait(tensors: Sequence[Any]) -> None:
    """What follows is behind these."""


def npu_print(*args: Any, summarize_size: int = 3, tensor_detail: bool = False) -> None:
    """Print values and tensors, `summarize_size` elements from each end (-1: all); tensor_detail adds device, shape and dtype.

    A graph of torch.compile breaks here, as at Python's own print. Raises ValueError for other sizes.
    """
    if summarize_size != -1 and summarize_size < 1:
        raise ValueError(f"npu_print: summarize_size is {summarize_size}; accepted: -1 (all), or at least 1")
    print(*(_text(value, summarize_size, tensor_detail) if isinstance(value, torch.Tensor) else value for value in args))


def _text(tensor: torch.Tensor, size: int, detail: bool) -> str:
    few = size != -1
    with torch._tensor_str.printoptions(threshold=2 * size if few else float("inf"), edgeitems=size if few else 3):
        text = str(tensor.detach().cpu())
    if not detail:
        return text
    return f"{text[:-1].split(', dtype=')[0]}, device='{tensor.device}', shape={tuple(tensor.shape)}, dtype={tensor.dtype})"


def npu_fused_infer_attention_score(*args: Any, **keywords: Any) -> Any:
    """That of torch_npu."""
    return importlib.import_module("torch_npu").npu_fused_infer_attention_score(*args, **keywords)


def npu_fused_infer_attention_score_v2(*args: Any, **keywords: Any) -> Any:
    """That of torch_npu."""
    return importlib.import_module("torch_npu").npu_fused_infer_attention_score_v2(*args, **keywords)
