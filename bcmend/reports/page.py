"""Pages of all reports, from one set of templates: one file each, in the reader's colours.

A page is for a browser; a fragment is the same for the output of a cell of a notebook, where its
style must not reach anything else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bcmend.reports.source import Line
from bcmend.reports.texts import plural

if TYPE_CHECKING:
    from jinja2 import Environment

#: What became of a site, in the order of a report, and how it is called there.
NAMES: Final = {
    "breaks": "still breaks the graph",
    "refused": "still breaks the graph",
    "withdrawn": "mended at first, then switched off: breaks the graph",
    "planned": "planned: no trace has reached it yet",
    "known": "mended by what is known",
    "mended": "mended",
}

#: What a site is called that was not mended, and breaks no graph all the same.
NOT_MENDED: Final = "not mended, and no graph break: torch has captured it as it is"

#: Up to how many entries a list is shown unfolded.
_UNFOLDED: Final = 25


def named(status: str) -> str:
    """Return what a reader knows a status as."""
    return NAMES.get(status, status)


@dataclass(frozen=True, slots=True)
class Said:
    """Something that is said of a place, in the colour of a status; ``name`` is that of a site."""

    status: str
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A place in a list of a page.

    Attributes:
        place, function: where it is.
        where: what more there is to say of that, such as the submodules.
        lines: the source, where it is there.
        said: what was made of it, and why.
        todo: what to do about it, each once.
        notes: what else is known, in small print.
        more: a message of several lines, as it is written.
        anchor: what links lead to.
    """

    place: str
    function: str
    where: str = ""
    lines: Sequence[Line] = ()
    said: Sequence[Said] = ()
    todo: Sequence[str] = ()
    notes: Sequence[str] = ()
    more: str = ""
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one page that can be folded together.

    Attributes:
        title: what they have in common; empty for no title, and nothing to fold.
        entries: the places.
        meaning: what the title means.
        todo: what to do about all.
        is_open: whether they are shown at first.
    """

    title: str
    entries: Sequence[Entry]
    meaning: str = ""
    todo: str = ""
    is_open: bool = True


def is_short(entries: Sequence[object]) -> bool:
    """Return whether a list is short enough to be shown unfolded."""
    return len(entries) <= _UNFOLDED


def page(template: str, title: str, **values: object) -> str:
    """Return an HTML page that needs no other file."""
    return render(template, title, is_fragment=False, **values)


def fragment(template: str, title: str, **values: object) -> str:
    """Return what a notebook shows: a part of a page, with a style that reaches nothing else."""
    return render(template, title, is_fragment=True, **values)


def render(template: str, title: str, **values: object) -> str:
    """Return what a template gives; ``title`` and all values are text, or have texts in them."""
    return _environment().get_template(template).render(title=title, **values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # which few need

    found = Environment(
        loader=PackageLoader("bcmend.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"prose": _prose, "plural": plural}
    return found


def _prose(text: str) -> list[tuple[str, bool]]:
    """Return the parts of a text, each with whether it is code: what stands between backticks."""
    return [(part, bool(at % 2)) for at, part in enumerate(_CODE.split(text)) if part]


_CODE: Final = re.compile(r"`([^`]+)`")
