"""The page of operators is the one that their definitions make, and every operator is on it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the operators of torch_npu need torch")

from anycann.adapters.torch.operators.all import OPERATORS
from anycann.adapters.torch.operators.reference_page import page


def test_the_page_is_what_the_definitions_make() -> None:
    committed = Path(__file__).parents[2] / "docs" / "torch-operators.md"
    command = "python -m anycann.adapters.torch.operators.reference_page > docs/torch-operators.md"
    assert committed.read_text(encoding="utf-8") == page(), f"run `{command}`"


def test_every_operator_says_what_it_does() -> None:
    missing = [name for name in OPERATORS if f"| `{name}` | |" in page() or f"| `{name}` |" not in page()]
    assert not missing
