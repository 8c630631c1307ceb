"""What to do about a place that breaks the graph: it depends on why, and on whose code it is."""

from __future__ import annotations

from typing import Final

from bcmend.reasons import REASONS
from bcmend.reports.places import owner_of

#: By detail: what a site is switched off by, and what to do.
_SWITCHED_OFF: Final = {
    "by a comment in the source": (
        "A comment in the source switches this site off.",
        "Remove the comment `# bcmend: off`.",
    ),
}
#: Reasons of which the advice needs no change of the code.
_FROM_OUTSIDE: Final = frozenset(
    "switched-off policy-keep not-captured differs where-would-speculate torch-differs".split()
)
_NOTHING: Final = (
    "The code is part of {package}: nothing can be done about it from outside. The call gives what "
    "eager execution gives, in more than one graph."
)
_ONE_SIDED: Final = (
    'The code is part of {package}: `Policy(one_sided="exit")` captures one side of most branches; '
    "calls that take the other are made in plain Python. Nothing else can be done from outside."
)
_MOVE: Final = "Move it out of what is compiled, or accept the graph break."


def meaning_of(slug: str, detail: str) -> str:
    """Return what a reason means, in short sentences; empty where it is not known."""
    if slug == "switched-off" and detail in _SWITCHED_OFF:
        return _SWITCHED_OFF[detail][0]
    return REASONS[slug].meaning if slug in REASONS else ""


def advice_for(slug: str, detail: str, file: str, kind: str = "") -> str:
    """Return what to do about a site that is not mended; empty where nothing is known of it.

    Args:
        slug: the reason, of `bcmend.reasons`.
        detail: what more is known of this site.
        file: the file with its code.
        kind: of the site: "branch" and others.
    """
    if slug == "switched-off" and detail in _SWITCHED_OFF:
        own = _SWITCHED_OFF[detail][1]
        package = owner_of(file)
        return f"{own} The code is part of {package}." if package else own
    if slug not in REASONS:
        return ""
    if slug in _FROM_OUTSIDE or not (package := owner_of(file)):
        return REASONS[slug].hint
    return (_ONE_SIDED if kind == "branch" else _NOTHING).format(package=package)


def advice_without_a_site(file: str) -> str:
    """Return what to do about a graph break of a kind that bcmend does not mend."""
    package = owner_of(file)
    return _NOTHING.format(package=package) if package else _MOVE
