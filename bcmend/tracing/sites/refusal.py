"""Why something cannot be mended, or not in one of the ways in which it could be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Refusal(Exception):
    """A site is refused.

    ``slug`` is a reason of ``bcmend.reasons``; ``detail`` is a line beside it.
    """

    def __init__(self, slug: str, detail: str = "") -> None:
        super().__init__(slug, detail)
        self.slug, self.detail = slug, detail

    def __str__(self) -> str:
        return self.detail or self.slug


class NotThisWay(Refusal):
    """One way of mending something is refused, which has others behind it; none ends with this."""

    def __init__(self, detail: str = "not in this way") -> None:
        super().__init__("", detail)


def attempt(make: Callable[[], T]) -> T | Refusal:
    """Return what ``make`` returns, or the refusal that it raises."""
    try:
        return make()
    except Refusal as refusal:
        return refusal.with_traceback(None)  # it would keep the frames of the attempt alive


class HalfWritten(Exception):
    """A lowering has failed when a part of it stood in the graph.

    Only tracing the frame again without the site helps.
    """
