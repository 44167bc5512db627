from __future__ import annotations

from pathlib import Path
import re

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "sanitizer.md"


def test_every_kind_that_the_page_names_is_found_by_a_test_and_the_other_way_round() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## What is found")[1].split("A *note*")[0]
    named = {kind for kind in re.findall(r"`([a-z-]+)`", table) if not kind.startswith("leaked-")}
    marked = {
        kind for path in HERE.glob("test_sanitizer_*.py") for kind in re.findall(r"#[!?] ([a-z-]+)", path.read_text(encoding="utf-8"))
    }
    assert named == {kind for kind in marked if not kind.startswith("leaked-")} - {"sanitizer-failed"}
