"""Text for people: counted nouns, aligned lines, and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.table import Table

_COLORS: Final = {
    "mended": "green",
    "mended by what is known": "green",
    "planned: no trace has reached it yet": "cyan",
    "still breaks the graph": "red",
    "mended at first, then switched off: breaks the graph": "red",
}


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return ``rows`` as lines with aligned columns; the last column is free to run on."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]


def rich_table(
    title: str, columns: Iterable[str], rows: Iterable[Sequence[str]], caption: str = ""
) -> Table:
    """Return a table for a terminal; a status in the first column has its colour."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), caption=Text(caption), caption_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for first, *others in rows:
        table.add_row(Text(first, style=_COLORS.get(first, "")), *map(Text, others))
    return table
