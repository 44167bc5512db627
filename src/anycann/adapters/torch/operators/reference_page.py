"""`python -m anycann.adapters.torch.operators.reference_page > docs/torch-operators.md`: every operator of torch_npu."""

from __future__ import annotations

from collections import Counter
import sys

from anycann.adapters.torch import contrib, optim
from anycann.adapters.torch.operators.all import FAMILIES, FUNCTIONS, OPERATORS
from anycann.adapters.torch.operators.registry import Operator

_HEAD = """# Operators of torch_npu

This page is written by `python -m anycann.adapters.torch.operators.reference_page`; a test fails when it is stale.

Each is `torch_npu.NAME` and `torch.ops.npu.NAME` (those that begin with `_npu_` and belong to Ascend's transformer library:
`torch.ops.atb.NAME`), for tensors on the npu and on the CPU. Each has a test against a reference in float64, and its shapes for compilers
are checked by `torch.library.opcheck`; gradients of those that programs train through are checked by differences.

*State*: nothing means all that is documented; *partly* says what is refused: such a call raises `NotImplementedError` with the name
of the argument, it never computes something else. *Gradient*: by torch, for the operator is made of torch's own, or its own;
nothing for results that have none, as integers.
"""


def page() -> str:
    """The whole page as Markdown."""
    states = Counter(_state(operator).partition(":")[0] or "done" for operator in OPERATORS.values())
    lines = [_HEAD, f"{len(OPERATORS)} operators: {states['done']} done, {states['partly']} partly.\n"]
    for family in FAMILIES:
        own = [operator for operator in OPERATORS.values() if operator.body.__module__ == family.__name__]
        if own:
            title = (family.__doc__ or "").split("\n")[0].rstrip(".")
            lines += [f"## {title}\n", "| operator | what it does | gradient | state |", "| --- | --- | --- | --- |", *map(_row, own), ""]
    lines += ["## Functions\n", "Of Python, beside them: " + ", ".join(f"`torch_npu.{name}`" for name in sorted(FUNCTIONS)) + ".\n"]
    lines += ["## Optimizers\n", "| `torch_npu.optim` | what it does |", "| --- | --- |"]
    lines += [f"| `{name}` | {_first(getattr(optim, name).__doc__)} |" for name in optim.__all__]
    lines += ["", "## Contributed\n", "| `torch_npu.contrib` | what it does |", "| --- | --- |"]
    lines += [f"| `{name}` | {_first(getattr(module, name).__doc__)} |" for name, module in sorted(contrib.MODULES.items())]
    return "\n".join(lines).rstrip() + "\n"


def _row(operator: Operator) -> str:
    gradient = "its own" if operator.gradient else "by torch" if operator.composed and operator.differentiable else ""
    cells = (f"`{operator.name}`", _first(operator.body.__doc__), gradient, _state(operator))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _first(text: str | None) -> str:
    """The first sentence or paragraph of a docstring."""
    return " ".join((text or "").split("\n\n")[0].split())


def _state(operator: Operator) -> str:
    return f"partly: without {operator.missing}" if operator.missing else ""


if __name__ == "__main__":
    sys.stdout.write(page())
