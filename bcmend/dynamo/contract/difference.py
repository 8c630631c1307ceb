"""One difference between two releases of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Kinds of differences, the most important first.
KINDS: Final = (
    *("missing", "moved", "parameters", "bases", "tables", "subclasses", "methods", "fields"),
    *("members", "settings", "handler", "body"),
)

#: Kinds of which ``before`` and ``after`` have only the names that the other has not.
SETS: Final = ("tables", "subclasses", "fields", "members")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not in one torch as in another.

    Attributes:
        subject: a method, class, function or setting of torch.
        kind: one of ``KINDS``.
        before, after: what it was, and what it is; empty for what is not there.
        needed_by: the modules of bcmend that rely on it; none if no part of bcmend has to change.
    """

    subject: str
    kind: str
    before: str
    after: str
    needed_by: tuple[str, ...]


def missing_names(lacking: Sequence[str]) -> list[Difference]:
    """Return a difference for each private name that ``compat`` takes and torch lacks."""
    return [
        Difference(each, "missing", each, "", ("bcmend.dynamo.compat",)) for each in sorted(lacking)
    ]
