"""Why something cannot be mended, or not in one of the ways in which it could be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Slugs of ways that have others behind them; all other slugs are those of ``bcmend.reasons``.
WAYS: Final = frozenset(
    "constant-value copy data-index lazy-output masked-store while-loop".split()
)


class Refusal(Exception):
    """A site, or one way of mending it, is refused.

    ``slug`` is a reason of ``bcmend.reasons`` or one of ``WAYS``; ``detail`` is a line beside it.
    """

    def __init__(self, slug: str, detail: str = "") -> None:
        super().__init__(slug, detail)
        self.slug, self.detail = slug, detail

    def __str__(self) -> str:
        return self.detail or self.slug


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
