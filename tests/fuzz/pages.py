"""Tables of docs/fuzzing.md that commands write: each between two marks that name it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "fuzzing.md"


def with_table(page: str, name: str, table: str) -> str:
    """Return a page with a table between the two marks of a name.

    Raises:
        ValueError: the page has no such marks.
    """
    mark, end = f"<!-- table of {name}, written by a command -->\n", "<!-- end of the table -->\n"
    before, begin, rest = page.partition(mark)
    _, found, after = rest.partition(end)
    if not (begin and found):
        raise ValueError(f"the page has no place for the table of {name}")
    return f"{before}{begin}\n{table}\n\n{end}{after}"


def write_table(path: Path, name: str, table: str) -> None:
    """Write a table into a page."""
    path.write_text(with_table(path.read_text(), name, table))
