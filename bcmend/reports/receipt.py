"""What became of all that a script has compiled, in one line, and the reports behind it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bcmend.reports.site_report import UNMATCHED, Report
from bcmend.reports.texts import plural


@dataclass(frozen=True, slots=True)
class Receipt:
    """The reports of a script.

    Attributes:
        reports: one of each module's class, and of each function.
        seconds: how long all traces of them took.
    """

    reports: tuple[Report, ...]
    seconds: float

    @property
    def places_left(self) -> int:
        """How many lines still break the graph."""
        return sum(each.places_left for each in self.reports)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The entries of the policy that name nothing in any report."""
        known = [set(each.unmatched) for each in self.reports if each.versions]
        return tuple(sorted(set.intersection(*known))) if known else ()

    def __str__(self) -> str:
        mended = sum(
            each.counts["mended"] + each.counts.get("known", 0) + len(each.mended_without_a_site)
            for each in self.reports
        )
        unmatched = f"; {UNMATCHED}: {', '.join(self.unmatched)}" * bool(self.unmatched)
        left, what = self.places_left, plural(len(self.reports), "object")
        return (
            f"bcmend: {what} compiled, {plural(mended, 'place')} mended, {left or 'nothing'} left; "
            f"traced in {self.seconds:.1f} s{unmatched}"
        )

    def to_text(self) -> str:
        """Return all reports as text."""
        return "\n\n".join([str(self), *map(str, self.reports)])

    def to_json(self) -> str:
        """Return all reports as a JSON list."""
        return json.dumps([each.to_dict() for each in self.reports], indent=2)
