"""Whether a mended object is the original, seen from outside, and where it is not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bcmend.reports.outcomes import SiteRecord
from bcmend.reports.texts import aligned, plural


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a mended call shows first what eager execution does not.

    Attributes:
        call: the number of the call, from 1.
        aspect: "exception", "result", "output", "arguments", "state", "globals", "gradients",
            "generators" or "identity".
        where: what leads there, such as ``state.encoder.calls``.
        eager, mended: what is there.
        stock: whether the call differs from eager execution without bcmend too.
    """

    call: int
    aspect: str
    where: str
    eager: str
    mended: str
    stock: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comparing calls of an object, eager and mended, has found.

    Attributes:
        subject: the name of the object.
        torch: the version that was used.
        backend: what the mended object was compiled by.
        runs: how many calls were compared.
        train: whether gradients were.
        is_copied: whether the calls were made in copies of the process.
        difference: the first difference; None where there is none.
        sites: what was mended.
        raised: what each call raised in eager execution, in one line; empty where it returned.
    """

    subject: str
    torch: str
    backend: str
    runs: int
    train: bool
    is_copied: bool
    difference: Difference | None
    sites: tuple[SiteRecord, ...]
    raised: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return self.difference is None

    @property
    def each_call_raised(self) -> bool:
        """Whether every call raised: mostly its arguments are wrong, and nothing was compared."""
        return bool(self.raised) and all(self.raised)

    def to_dict(self) -> dict[str, object]:
        """Return everything as dictionaries, lists, strings and numbers alone."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"schema": _SCHEMA, "equal": self.equal, **found}

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict()` as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        calls = plural(self.runs, "call") + (", with gradients" if self.train else "")
        what = f"{calls}, compiled by {self.backend!r}, torch {self.torch}"
        if self.difference is None:
            return f"bcmend: {self.subject}: {_without_difference(self, what)}"
        return "\n".join(
            [
                f"bcmend: {self.subject}: differs in {what}",
                *_lines_of(self.difference),
                *_lines_of_sites(self.sites),
            ]
        )


def _without_difference(found: Verdict, what: str) -> str:
    if found.each_call_raised:
        kinds = ", then ".join(dict.fromkeys(found.raised))
        alike = f"so did the mended ones in {what}: nothing else was compared"
        return f"each call raised {kinds}\n  {alike}"
    if not found.sites:
        return f"no site was mended, nothing to compare: equal in {what}"
    return f"equal in {what}; {plural(len(found.sites), 'mended site')}"


_SCHEMA: Final = 1
"""Changes where a name in `to_dict()` gets another meaning, or goes."""


def _lines_of(found: Difference) -> list[str]:
    lines = [
        f"  call {found.call}, {found.aspect}: {found.where}",
        f"    eager   {found.eager}",
        f"    mended  {found.mended}",
    ]
    if found.stock:
        lines.append("    torch.compile differs from eager execution here without bcmend too")
    return lines


def _lines_of_sites(sites: tuple[SiteRecord, ...]) -> list[str]:
    if not sites:
        return ["  no site was mended"]
    rows = [
        (f"{Path(each.file).name}:{each.line}", each.kind, f"Policy(off=({each.name!r},))")
        for each in sites
    ]
    return [
        "  mended sites, each with what switches it off",
        *(f"    {row}" for row in aligned(rows)),
    ]
