"""The differences between two descriptions of torch, each with the modules of bcmend concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from bcmend.dynamo import hooks
from bcmend.dynamo.contract import description, names
from bcmend.dynamo.contract.difference import KINDS, SETS, Difference
from bcmend.dynamo.contract.recorded import Facts
from bcmend.dynamo.models import known_models

_CONSTRUCTOR: Final = "__init__"
#: Who relies on what is recorded and no module uses by its name.
_ADAPTER: Final = ("bcmend.dynamo.compat",)
_METHODS_OF_ADAPTER: Final = ("bcmend.dynamo.models.methods",)

Users = Callable[[str], tuple[str, ...]]


def differences(before: Facts, after: Facts) -> list[Difference]:
    """Return how a torch differs from another; ``after`` is the running one, or as new."""
    found = [
        *_of_targets(before, after),
        *_of_handlers(before, after),
        *_of_classes(before, after),
        *_of_functions(before, after),
        *_of_settings(before, after),
    ]
    merged: dict[tuple[str, str], Difference] = {}
    for each in found:
        # A method that is replaced may be called as well.
        known = merged.get((each.subject, each.kind), each)
        needed_by = tuple(sorted({*known.needed_by, *each.needed_by}))
        merged[each.subject, each.kind] = replace(each, needed_by=needed_by)
    return sorted(merged.values(), key=lambda each: (KINDS.index(each.kind), each.subject))


def _pairs(section: str, before: Facts, after: Facts) -> Iterator[tuple[str, Any, Any]]:
    """Yield each subject of a section that differs, with what it was and is."""
    old, new = before[section], after[section]
    for subject in sorted(old.keys() | new.keys()):
        if old.get(subject) != new.get(subject):
            yield subject, old.get(subject), new.get(subject)


def _of_targets(before: Facts, after: Facts) -> Iterator[Difference]:
    declared: dict[str, set[str]] = {}
    for hook in (*hooks.REGISTRY.hooks, *hooks.REGISTRY.watches):
        declared.setdefault(hook.target, set()).add(hook.module)
    for subject, old, new in _pairs(description.TARGETS, before, after):
        needed_by = tuple(sorted(declared.get(subject, ())))
        if old is None or new is None:
            yield Difference(subject, "missing", _text(old), _text(new), needed_by)
            continue
        for fact, kind in (("by", "moved"), ("parameters", "parameters"), ("body", "body")):
            if old[fact] != new[fact]:
                yield Difference(subject, kind, old[fact], new[fact], needed_by)


def _text(target: dict[str, str] | None) -> str:
    return "" if target is None else f"{target['by']}({target['parameters']})"


def _of_handlers(before: Facts, after: Facts) -> Iterator[Difference]:
    declared: dict[str, set[str]] = {}
    for row in hooks.REGISTRY.rows:
        declared.setdefault(row.target, set()).add(row.module)
    for subject, old, new in _pairs(description.HANDLERS, before, after):
        needed_by = tuple(sorted(declared.get(subject, ())))
        yield Difference(subject, "handler", old or "", new or "", needed_by)


def _of_functions(before: Facts, after: Facts) -> Iterator[Difference]:
    users = names.users()
    for subject, old, new in _pairs(description.FUNCTIONS, before, after):
        places = [(each or "").partition("(")[0] for each in (old, new)]
        kind = "moved" if places[0] != places[1] else "parameters"
        yield Difference(subject, kind, old or "", new or "", users(subject))


def _of_settings(before: Facts, after: Facts) -> Iterator[Difference]:
    users = names.users()
    for subject, old, new in _pairs(description.SETTINGS, before, after):
        needed_by = users(subject) or _ADAPTER
        yield Difference(subject, "settings", old or "", new or "", needed_by)


def _of_classes(before: Facts, after: Facts) -> Iterator[Difference]:
    users = names.users()
    for subject, old, new in _pairs(description.CLASSES, before, after):
        if old is None or new is None:
            was, now = (each["module"] if each else "" for each in (old, new))
            yield Difference(subject, "missing", was, now, _users_of_class(subject, users))
        else:
            yield from _of_class(subject, old, new, users)


def _users_of_class(name: str, users: Users) -> tuple[str, ...]:
    """Return who uses a class by its name, or replaces a method of it."""
    hooked = {each.module for each in hooks.REGISTRY.hooks if each.owner.__name__ == name}
    return tuple(sorted(hooked.union(users(name)))) or _ADAPTER


def _of_class(
    name: str, old: dict[str, Any], new: dict[str, Any], users: Users
) -> Iterator[Difference]:
    of_class = _users_of_class(name, users)
    for fact, kind in (("module", "moved"), ("bases", "bases")):
        if old.get(fact) != new.get(fact):
            before, after = _shown(old.get(fact)), _shown(new.get(fact))
            yield Difference(name, kind, before, after, of_class)
    yield from _of_methods(name, old.get("methods", {}), new.get("methods", {}), users)
    for fact in SETS:
        was, now = (_names_in(each.get(fact, ())) for each in (old, new))
        gone, added = sorted(was - now), sorted(now - was)
        if fact == "subclasses" and not gone:
            needed_by = _needing_subclasses(name, added, of_class)
        else:
            needed_by = of_class
        if gone or added:
            yield Difference(name, fact, " ".join(gone), " ".join(added), needed_by)


def _shown(names_in_order: Any) -> str:
    return names_in_order if isinstance(names_in_order, str) else ", ".join(names_in_order or ())


def _names_in(fact: Any) -> set[str]:
    """Return names: of a list, or of tables the names of each with that of the table."""
    if isinstance(fact, dict):
        return {f"{table}.{name}" for table, found in fact.items() for name in found}
    return set(fact)


def _needing_subclasses(name: str, added: list[str], users: tuple[str, ...]) -> tuple[str, ...]:
    """Return who has to know of new subclasses: nobody, if they are models that refuse an arm."""
    if not known_models.is_a_model(name) or known_models.KNOWN.intersection(added):
        return users
    return ()


def _of_methods(
    name: str, old: dict[str, str], new: dict[str, str], users: Users
) -> Iterator[Difference]:
    for method in sorted(old.keys() | new.keys()):
        before, after = old.get(method), new.get(method)
        if before == after:
            continue
        if method == _CONSTRUCTOR:
            needed_by = _users_of_class(name, users)
        else:
            needed_by = users(method) or _METHODS_OF_ADAPTER
        kind = "methods" if before is None or after is None else "parameters"
        texts = ["()" if each == "" else each or "" for each in (before, after)]
        yield Difference(f"{name}.{method}", kind, texts[0], texts[1], needed_by)
