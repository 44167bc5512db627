"""Tables and numbers for people."""

from __future__ import annotations

import pytest

from anycann.tools.output import format_bytes, format_count, format_dims, format_seconds, table


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (1010 << 10, "1010 KiB"), (3 << 30, "3 GiB")]
)
def test_bytes_have_binary_units(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (999, "999"), (1234, "1.23 k"), (8.2e9, "8.2 G"), (4e12, "4 T")])
def test_counts_have_decimal_units(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 us"), (0.0, "0 us"), (1500, "1500 s")])
def test_seconds_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("shape", "text"), [((1, 3, 224), "[1, 3, 224]"), ((), "[]"), (("n", None, 3), "[n, ?, 3]")])
def test_shapes_are_lists_with_names_for_open_sizes(shape: tuple[object, ...], text: str) -> None:
    assert format_dims(shape) == text


def test_text_in_a_table_is_never_markup() -> None:
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    Console(file=out, width=40).print(table(("a", "b"), [("[red]x[/red]", 1)], numbers=("b",)))
    assert "[red]x[/red]" in out.getvalue()
