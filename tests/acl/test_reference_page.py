"""docs/ascendcl.md says what is declared, and every code has its explanation."""

from __future__ import annotations

from pathlib import Path

from anycann.acl.code_help import BLOCKS, CODE_HELP
from anycann.acl.codes import Code
from anycann.acl.entries import BORDER
from anycann.acl.namespace import declared
from anycann.acl.process import error_block
from anycann.acl.reference_page import page


def test_the_page_is_current() -> None:
    committed = Path(__file__).parents[2] / "docs" / "ascendcl.md"
    assert committed.read_text(encoding="utf-8") == page(), "run `python -m anycann.acl.reference_page > docs/ascendcl.md`"


def test_every_function_says_what_it_does() -> None:
    declared()
    assert [name for name, entry in BORDER.entries.items() if entry.refusal is None and not entry.call.__doc__] == []


def test_every_code_has_its_explanation() -> None:
    assert set(CODE_HELP) == set(Code)
    assert {error_block(code) for code in Code if not code.name.startswith("GE_")} <= set(BLOCKS)
    assert all(bool(row.cause) == bool(row.action) for row in (*CODE_HELP.values(), *BLOCKS.values()))


def test_codes_that_are_returned_have_a_cause() -> None:
    """What the sources name as a return code is not explained as one that never comes."""
    folder = Path(__file__).parents[2] / "src" / "anycann" / "acl"
    sources = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name not in ("codes.py", "code_help.py"))
    named = [code for code in Code if f"Code.{code.name}," in sources or f"Code.{code.name})" in sources]
    assert [code.name for code in named if not CODE_HELP[code].cause] == []
