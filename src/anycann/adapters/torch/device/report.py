"""TORCH_NPU_REPORT=1: which operators ran on the npu, how often, how long, and who ran them; and which of them Ascend does not have.

Times are of the kernel, below autograd and the dispatcher. An operator that Ascend lacks, and that torch does not put together from others,
runs on the host there, with a copy each way: a porter wants to know.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
import sys
import time
from typing import Any

import torch

from anycann.adapters.torch.device.properties import chip
from anycann.support.options import TORCH_NPU_REPORT
from anycann.support.records import dataclass

HOST_KERNEL, OWN_KERNEL = "torch's cpu kernel", "AnyCANN"
_BEFORE_ACLNN = ("310", "310P", "910")  # series whose operators are not aclnn functions


@dataclass
class Use:
    """What one operator did."""

    runner: str
    count: int = 0
    seconds: float = 0.0


uses: dict[str, Use] = {}
computed_wide: set[str] = set()  # operators whose 16-bit floats were computed in float32


@cache
def wanted() -> bool:
    """Whether TORCH_NPU_REPORT asks for the report, when torch_npu is imported."""
    return bool(TORCH_NPU_REPORT.get())


def install() -> None:
    """Print the report when the process ends."""
    atexit.register(lambda: print(text(), file=sys.stderr))


def recorded(name: str, kernel: Callable[..., Any], runner: str) -> Callable[..., Any]:
    """`kernel` of the operator `name`, counted and timed."""

    @wraps(kernel)
    def timed(*args: Any, **keywords: Any) -> Any:
        begin = time.perf_counter()
        try:
            return kernel(*args, **keywords)
        finally:
            use = uses.setdefault(name, Use(runner))
            use.count += 1
            use.seconds += time.perf_counter() - begin

    return timed


def text() -> str:
    """The report: a table, longest first, and the operators that Ascend lacks."""
    if not uses:
        return "torch_npu: no operator ran on the npu"
    rows = sorted(uses.items(), key=lambda item: -item[1].seconds)
    width = max(len(name) for name in uses)
    lines = [f"{'operator':{width}} {'count':>8} {'ms':>10}  run by"]
    lines += [f"{name:{width}} {use.count:8} {use.seconds * 1e3:10.3f}  {use.runner}" for name, use in rows]
    if computed_wide:
        lines.append(f"computed in float32 and rounded, for torch's cpu kernel takes no 16-bit floats: {', '.join(sorted(computed_wide))}")
    missing = sorted(name for name in uses if lacks(name))
    if missing:
        lines.append(f"{chip().name} has no kernel for {', '.join(missing)}: torch_npu runs them on the host there")
    return "\n".join(lines)


def lacks(name: str) -> bool:
    """Whether torch_npu on the chosen chip has neither a kernel for the operator `aten::...` nor a way to put it together from others."""
    library, _, operator = name.partition("::")
    there, has = _operators(chip().series in _BEFORE_ACLNN), torch._C._dispatch_has_kernel_for_dispatch_key
    if library != "aten" or operator in there or has(name, "CompositeImplicitAutograd") or has(name, "CompositeExplicitAutograd"):
        return False
    filling = f"{operator.partition('.')[0].removesuffix('_')}."
    through_out = has(name, "CompositeExplicitAutogradNonFunctional") and any(
        known.startswith(filling) and known.endswith("out") for known in there
    )
    return not through_out


@cache
def _operators(before_aclnn: bool) -> frozenset[str]:
    """The operators that Ascend has kernels for, as `add.Tensor` (`ascend_operators.txt`)."""
    found = set()
    for line in (Path(__file__).parent / "ascend_operators.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        operator, *overloads = line.split()
        for overload in overloads:
            plain, _, chips = overload.partition("/")
            if chips != ("new" if before_aclnn else "old"):
                found.add(operator if plain == "-" else f"{operator}.{plain}")
    return frozenset(found)
