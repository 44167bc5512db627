"""What convolutions and pooling share: kernel sizes, steps and paddings of the spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.frontends.tensorflow.builder import sizes_of
from anycann.frontends.tensorflow.definition import Call


def spatial(call: Call, name: str, rank: int) -> list[int]:
    """The entries of an attribute for the spatial axes; 1 each where it is not there. Raises UnsupportedError for others that are not 1."""
    return spatial_of(call, name, call.integers_of(name) or [1] * rank)


def spatial_of(call: Call, name: str, entries: Sequence[int]) -> list[int]:
    """The entries for the spatial axes, of one for each axis."""
    outer, inner = ([entries[0], entries[-1]], entries[1:-1]) if call.channels_are_last else (entries[:2], entries[2:])
    if any(entry != 1 for entry in outer):
        raise call.fail(f"{name} is {list(entries)}; it must be 1 for batch and channels")
    return list(inner)


def padding(call: Call, picture: ir.Value, kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]) -> dict[str, object]:
    """The attribute that says the padding of `picture`, whose channels are first: SAME, VALID or EXPLICIT."""
    mode = call.text("padding", "VALID")
    if mode == "EXPLICIT":
        return {"pads": _explicit(call)}
    if mode == "VALID":
        return {"pads": [0] * 2 * len(kernel)}
    if mode != "SAME":
        raise call.fail(f"padding is {mode}; accepted: SAME, VALID, EXPLICIT")
    sizes = [size for size in (sizes_of(picture) or ())[2:] if size is not None]
    if len(sizes) == len(kernel):
        return {"pads": same_pads(sizes, kernel, steps, gaps)}
    if all(step == 1 for step in steps):  # then it does not depend on the size
        return {"pads": same_pads([1] * len(kernel), kernel, steps, gaps)}
    return {"auto_pad": "SAME_UPPER"}


def same_pads(sizes: Sequence[int], kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]) -> list[int]:
    """Paddings by which ceil(size / step) windows fit; the larger half behind."""
    before, after = [], []
    for size, extent, step, gap in zip(sizes, kernel, steps, gaps, strict=True):
        total = max((-(-size // step) - 1) * step + (extent - 1) * gap + 1 - size, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return [*before, *after]


def _explicit(call: Call) -> list[int]:
    """`explicit_paddings` has (before, after) for every axis."""
    pairs = call.integers_of("explicit_paddings")
    befores, afters = spatial_pads(call, pairs[0::2]), spatial_pads(call, pairs[1::2])
    return [*befores, *afters]


def spatial_pads(call: Call, entries: Sequence[int]) -> list[int]:
    """The entries of the spatial axes; batch and channels have no padding."""
    inner = entries[1:-1] if call.channels_are_last else entries[2:]
    if sum(entries) != sum(inner):
        raise call.fail("batch and channels cannot be padded by explicit_paddings")
    return list(inner)
