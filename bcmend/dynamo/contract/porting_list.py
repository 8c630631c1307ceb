"""The differences between two releases of torch as a list of what to look at, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bcmend.dynamo.contract import groups
from bcmend.dynamo.contract.difference import KINDS, SETS, Difference

_NOWHERE = "nothing to edit: models that are new refuse an arm, and what is gone nobody uses"


def lines(differences: Sequence[Difference]) -> Iterator[str]:
    """Yield the list: by module of bcmend, what is the most important first in each."""
    by_module: dict[str, list[Difference]] = {}
    for each in differences:
        by_module.setdefault(_first(each), []).append(each)
    for module in sorted(by_module, key=lambda name: _rank(name, by_module[name])):
        found = by_module[module]
        yield f"\n{module}{_group(module)}" if module else f"\n{_NOWHERE}"
        for each in sorted(found, key=_importance):
            yield f"  {each.kind}: {each.subject}{_change(each)}"
            others = [name for name in each.needed_by if name != module]
            if others:
                yield f"    also: {', '.join(map(_short, others))}"


def _first(difference: Difference) -> str:
    """Return the module to begin with: the adapter, where it is concerned."""
    modules = difference.needed_by
    adapter = [each for each in modules if each.startswith("bcmend.dynamo.")]
    return next(iter((*adapter, *modules)), "")


def _rank(module: str, found: Sequence[Difference]) -> tuple[bool, bool, int, str]:
    is_core = groups.group_of(module) == groups.CORE
    return not module, not is_core, min(map(_importance, found))[0], module


def _importance(difference: Difference) -> tuple[int, str]:
    return KINDS.index(difference.kind), difference.subject


def _group(module: str) -> str:
    group = groups.group_of(module)
    return "" if group == groups.CORE else f" (can be done without: {group})"


def _change(difference: Difference) -> str:
    before, after = difference.before, difference.after
    if difference.kind == "body":
        return ""
    if before and after and difference.kind not in SETS:
        return f": {before} -> {after}"
    gone, new = f" gone: {before}" if before else "", f" new: {after}" if after else ""
    return f",{gone}{new}"


def _short(module: str) -> str:
    return module.removeprefix("bcmend.")
