"""The running torch compared with what bcmend is written for, once in a process.

Imports everything that declares a hook, once no private name is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from bcmend.dynamo.contract import difference, names
from bcmend.dynamo.contract.difference import Difference
from bcmend.dynamo.contract.recorded import Facts, Release


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """What became of the comparison.

    Attributes:
        core: what is not as the core of bcmend needs it, one subject each; then nothing works.
        aside: by the groups of hooks that are set aside, what has changed.
        release: what the running torch was compared with.
        lacking: the names that bcmend imports and this torch lacks; then nothing was compared.
    """

    core: tuple[str, ...]
    aside: Mapping[str, Sequence[str]]
    release: Release
    lacking: tuple[str, ...] = ()

    def words(self) -> str:
        """Return what a user should know, as a part of a sentence."""
        tested = f"torch {self.release.version}"
        if self.lacking:
            return f"{_listed(self.lacking)} {_is(self.lacking)} missing"
        if self.core:
            return f"{_listed(self.core)} {_is(self.core)} not as in {tested}"
        if not self.aside:
            return f"relies on nothing that is not as in {tested}"
        changed = sorted({each for subjects in self.aside.values() for each in subjects})
        return (
            f"refuses branches that come to {_listed(changed)}, which {_is(changed)} not as in "
            f"{tested}"
        )


_SHOWN: Final = 3


def _listed(subjects: Sequence[str]) -> str:
    more = len(subjects) - _SHOWN
    shown = list(subjects[:_SHOWN]) + ([f"{more} more"] if more > 0 else [])
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _is(subjects: Sequence[str]) -> str:
    return "is" if len(subjects) == 1 else "are"


#: What code of bcmend raises that reads what a torch has not, or has otherwise.
_UNLIKE: Final = (ImportError, AttributeError, LookupError, TypeError, ValueError, OSError)


@functools.cache
def missing() -> tuple[str, ...]:
    """Return what bcmend reads of torch when it is imported, and this torch lacks."""
    if lacking := names.missing():
        return tuple(lacking)
    try:
        declare_hooks()
    except _UNLIKE as error:
        return (_said(error),)
    return ()


def _said(error: Exception) -> str:
    """Return what an error says as a part of a sentence."""
    text = " ".join(str(error).split()).rstrip(".").replace(". ", "; ")
    return f"what bcmend reads of it ({text})"


def compared(release: Release) -> ComparisonResult:
    """Return how the running torch differs from a release; nothing changes by that."""
    if lacking := missing():
        return ComparisonResult(lacking, {}, release, lacking)
    from bcmend.dynamo.contract import groups

    by_group = {
        group: tuple(dict.fromkeys(each.subject for each in concerning))
        for group, concerning in groups.concerned(differences(release)).items()
    }
    core = dict.fromkeys((*by_group.pop(groups.CORE, ()), *_missing()))
    return ComparisonResult(tuple(core), by_group, release)


def differences(release: Release) -> list[Difference]:
    """Return the differences of the running torch from a release."""
    if lacking := missing():
        return difference.missing_names(lacking)
    from bcmend.dynamo.contract import comparison

    try:
        present = described()
    except _UNLIKE as error:  # what differs is not known, but that it is the core
        return difference.missing_names([_said(error)])
    return comparison.differences(release.facts, present)


def porting_list(release: Release) -> Iterator[str]:
    """Yield the differences of the running torch from a release as a list of what to port."""
    from bcmend.dynamo.contract import porting_list

    found = differences(release)
    versions = f"torch {torch.__version__} and torch {release.version}"
    count = f"{len(found) or 'no'} difference{'' if len(found) == 1 else 's'}"
    yield f"{count} between {versions} in what bcmend relies on"
    yield from porting_list.lines(found)


@functools.cache
def described() -> Facts:
    """Return the description of the running torch."""
    declare_hooks()
    from bcmend.dynamo.contract import description

    return description.describe()


def declare_hooks() -> None:
    """Import everything that declares a hook."""
    from bcmend.patching import decorated, retrace, stops, told  # noqa: F401
    from bcmend.tracing.entry import primitive_namespace  # noqa: F401


def set_aside(finding: ComparisonResult) -> None:
    """Have the hooks of the groups that differ refuse an arm, and do nothing else."""
    from bcmend.dynamo.contract import aside, groups
    from bcmend.tracing.speculation import unknown_models

    modules = [each for group in finding.aside for each in groups.OPTIONAL[group]]
    aside.set_aside(modules, unknown_models.come_to_changed)


def drop_missing() -> None:
    """Have bcmend go on with the hooks whose targets exist."""
    declare_hooks()
    from bcmend.dynamo.contract import aside

    aside.drop_missing()


def _missing() -> list[str]:
    """Return what is to be replaced and is not there, but for what optional groups replace."""
    from bcmend.dynamo import hooks
    from bcmend.dynamo.contract import groups

    declared = [*hooks.REGISTRY.hooks, *hooks.REGISTRY.watches]
    optional = {each.target for each in declared if groups.group_of(each.module) != groups.CORE}
    return [each for each in hooks.REGISTRY.missing() if each not in optional]
