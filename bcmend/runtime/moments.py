"""Objects in output records, which have to show what they were at the moment of the call.

A record keeps an object, not a copy of it: only its own class knows what it shows. So what is
stored to the object later in the trace is noted, and the trace made again. Where no more than
attributes are stored, the second trace keeps their values of the moment, and the delivery puts
them in place while it calls the original statement. Where the object holds a container or another
object that is changed and cannot be kept so, the statement is left alone.

Reads Dynamo's models of objects and, behind those that were there before the call, the objects
themselves, since the trace has looked only at what the program reads.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch._dynamo.variables import (
    ConstantVariable,
    ConstDictVariable,
    ListVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import AttributeMutationNew, VariableTracker
from torch._dynamo.variables.dicts import DictViewVariable
from torch._dynamo.variables.misc import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.user_defined import (
    OrderedDictVariable,
    UserDefinedObjectVariable,
)

from bcmend.runtime import containers, records, snapshots, watches
from bcmend.runtime.merge import constant, example_of, object_behind
from bcmend.runtime.per_trace import at_the_end, kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.uncounted import changes

__all__ = ["Moment", "of_objects", "require_closed", "unformatted"]

_PLAIN = (
    str, bytes, int, float, complex, bool, type(None), type, ModuleType, FunctionType,
    BuiltinFunctionType, torch.dtype, torch.device,
)  # fmt: skip
#: What ``sinks.snapshot`` makes a copy of.
_COPIED = (ListVariable, ConstDictVariable, OrderedDictVariable)
#: More objects than this behind an argument are not looked through.
_MOST = 20_000


Attributes = dict[VariableTracker, dict[str, VariableTracker]]
Present = dict[tuple[UserDefinedObjectVariable, str], VariableTracker | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """How things were when a record was made.

    Attributes:
        site: the output statement.
        inside: the models of all that its arguments hold.
        behind: identities of the objects that were there before the call and are held too.
        attributes: what had been stored to objects.
        containers: what containers held.
        owners: objects of classes that are made of a container's, by Dynamo's model of that.
        versions: how often tensors had been changed in place.
        put_back: for each object, the attributes of which the record keeps the values.
        copied: what was in those attributes.
        known: the names of those attributes.
    """

    site: LiveSite
    inside: frozenset[VariableTracker]
    behind: frozenset[int]
    attributes: Attributes
    containers: tuple[snapshots.Remembered, ...]
    owners: dict[VariableTracker, VariableTracker]
    versions: dict[VariableTracker, int]
    put_back: dict[VariableTracker, set[str]]
    copied: frozenset[VariableTracker]
    known: frozenset[str]


def of_objects(
    tx: Any,
    site: LiveSite,
    values: Iterable[VariableTracker],
    snapshot: Callable[[VariableTracker], VariableTracker],
) -> VariableTracker | None:
    """Watch the objects among ``values``; return what the record has to keep of them.

    That is a tuple of (object, name of an attribute, whether it existed, its value), empty if
    nothing is stored to any of them later, or ``None`` if there are no objects.
    """
    leaves = list(_not_copied(values))
    if not leaves:
        return None
    inside: dict[VariableTracker, None] = {}
    snapshots.visit(lambda one: inside.setdefault(one.unwrap()), leaves, tx.output.side_effects)
    objects = [one for one in inside if isinstance(one, UserDefinedObjectVariable)]
    present = _present(tx, site, objects)
    rows: list[VariableTracker] = [
        TupleVariable([owner, constant(name), constant(value is not None), _shown(value, snapshot)])
        for (owner, name), value in present.items()
    ]
    _watch(tx, _moment(tx, site, inside, [*objects, *leaves], present))
    return TupleVariable(rows)


def unformatted(value: VariableTracker) -> VariableTracker:
    """Return a text that is still to be formatted as something that ``show_as_of`` formats.

    Dynamo formats it before it replays what was stored to the objects in it.
    """
    value = value.realize()
    if type(value) is TupleVariable:  # such as the arguments of a call inside its callers
        items = [unformatted(item) for item in value.items]
        same = all(one is other.realize() for one, other in zip(items, value.items, strict=True))
        return value if same else TupleVariable(items)
    if not isinstance(value, StringFormatVariable):
        return value
    parts = [unformatted(part) for part in value.sym_args]
    named = [
        TupleVariable([constant(name), unformatted(part)])
        for name, part in value.sym_kwargs.items()
    ]
    text = [constant(value.format_string), TupleVariable(parts), TupleVariable([*named])]
    return TupleVariable([constant(records.TEXT), *text])


def _not_copied(values: Iterable[VariableTracker]) -> Iterator[VariableTracker]:
    """Yield what ``sinks.snapshot`` keeps as it is, though it might be changed."""
    for each in values:
        value = each.realize()
        items = containers.items_in(value)
        if items is not None:
            yield from _not_copied(items)
        elif isinstance(value, DictViewVariable):
            yield from _not_copied([value.dv_dict])
        elif type(value) is OrderedDictVariable and value.python_type() is OrderedDict:
            contents: Any = value._base_vt
            yield from _not_copied(contents.items.values())
        elif isinstance(value, StringFormatVariable):
            yield from _not_copied([*value.sym_args, *value.sym_kwargs.values()])
        elif not isinstance(value, (ConstantVariable, SymNodeVariable, TensorVariable)):
            yield value


def _present(tx: Any, site: LiveSite, objects: Iterable[UserDefinedObjectVariable]) -> Present:
    """Return what is in the attributes of which later changes are known."""
    owners = [owner for owner in objects if hasattr(owner.value, "__dict__")]
    places = [(owner, name) for owner in owners for name in sorted(site.stored_later)]
    return {(owner, name): _attribute(tx, owner, name) for owner, name in places}


def _shown(
    value: VariableTracker | None, snapshot: Callable[[VariableTracker], VariableTracker]
) -> VariableTracker:
    return constant(None) if value is None else snapshot(value)


def _attribute(tx: Any, owner: UserDefinedObjectVariable, name: str) -> VariableTracker | None:
    """Return what is in an attribute now, if anything is."""
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(owner, name):
        pending: VariableTracker = effects.store_attr_mutations[owner][name]
        return None if type(pending).__name__ == "DeletedVariable" else pending
    if isinstance(owner.mutation_type, AttributeMutationNew) or not _has(owner.value, name):
        return None
    return owner.var_getattr(tx, name)


def _has(owner: object, name: str) -> bool:
    """Whether an object holds an attribute itself; a module has dictionaries of more."""
    places = [vars(owner), *(vars(owner).get(each, {}) for each in ("_buffers", "_modules"))]
    return any(name in each for each in places)


def _moment(
    tx: Any,
    site: LiveSite,
    inside: Iterable[VariableTracker],
    roots: Iterable[VariableTracker],
    present: Present,
) -> Moment:
    effects = tx.output.side_effects
    put_back: dict[VariableTracker, set[str]] = {}
    for owner, name in present:
        put_back.setdefault(owner, set()).add(name)
    known = dict.fromkeys([*effects.id_to_variable.values(), *inside])
    owners = {base: each for each in known if (base := _base_of(each)) is not None}
    return Moment(
        site,
        frozenset(inside),
        frozenset(_identities(_real(tx, root) for root in roots)),
        {owner: dict(stored) for owner, stored in effects.store_attr_mutations.items()},
        tuple(
            snapshots.remember(each) for each in (*known, *owners) if snapshots.holds_items(each)
        ),
        owners,
        {each: _version(each) for each in known if isinstance(each, TensorVariable)},
        put_back,
        frozenset(each.realize() for each in present.values() if each is not None),
        frozenset(site.stored_later),
    )


def _base_of(variable: VariableTracker) -> VariableTracker | None:
    """Return the container that an object of a class made of ``dict`` or ``list`` is too."""
    base: VariableTracker | None = vars(variable).get("_base_vt")
    return base


def _version(tensor: TensorVariable) -> int:
    return changes(example_of(tensor))


def _real(tx: Any, root: VariableTracker) -> object:
    """Return the object that was there before the call, or ``None``."""
    if root.source is None:
        return None
    for identity, known in tx.output.side_effects.id_to_variable.items():
        if known is root:
            return next((x for x in tx.output.side_effects.keepalive if id(x) == identity), None)
    return object_behind(root)


def _identities(roots: Iterable[object]) -> set[int]:
    """Return the identities of all that ``roots`` hold, themselves included."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting and len(seen) < _MOST:
        value = waiting.pop()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            waiting += value
        if not isinstance(value, torch.Tensor):
            waiting += vars(value).values() if hasattr(value, "__dict__") else ()
            waiting += (getattr(value, name, None) for name in _slots(type(value)))
    return seen


def _slots(kind: type) -> Iterable[str]:
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _watch(tx: Any, moment: Moment) -> None:
    found: list[Moment] = kept(tx.output, "moments", list)
    if not found:
        output = tx.output
        at_the_end(output, lambda: _check(output.side_effects, found))
    found.append(moment)


def require_closed(
    tx: Any, sites: Collection[LiveSite], containers: Iterable[VariableTracker]
) -> None:
    """Have the frame traced again if output in an arm holds a container that the branch opens.

    The branch gives it the contents of the side that is taken, and only then is that output
    written.
    """
    known: list[Moment] = kept(tx.output, "moments", list)
    found = [moment for moment in known if moment.site in sites]
    withdrawn = False
    for container in containers if found else ():
        for moment in found:
            held = [container, moment.owners.get(container, container)]
            if not moment.inside.isdisjoint(held) or _is_behind(tx, moment, held):
                withdrawn = _withdraw(moment, "what an object holds is changed behind it in an arm")
    if withdrawn:
        raise watches.SiteChanged(restart_reason="bcmend: an object is changed in an arm")


def _is_behind(tx: Any, moment: Moment, held: Iterable[VariableTracker]) -> bool:
    known = tx.output.side_effects.id_to_variable.items()
    return any(one is each and key in moment.behind for key, one in known for each in held)


def _check(effects: Any, moments: Iterable[Moment]) -> None:
    """Have the frame traced again if a record would show what was not there yet."""
    changed = [moment for moment in moments if _has_changed(effects, moment)]
    if changed:
        raise watches.SiteChanged(restart_reason="bcmend: an object is changed later")


def _has_changed(effects: Any, moment: Moment) -> bool:
    """Whether the objects of a record are changed later in a way that it does not keep."""
    identity = {known: key for key, known in effects.id_to_variable.items()}

    def is_held(each: VariableTracker) -> bool:
        return each in moment.inside or identity.get(each) in moment.behind

    names: set[str] = set()
    for each in _changed_inside(effects, moment):
        if each in moment.copied or not is_held(each):
            continue
        is_copied = type(each) in _COPIED or isinstance(each, TensorVariable)
        holding = _names_of(effects, moment, each, identity.get(each)) if is_copied else set()
        if not holding - moment.known:
            return _withdraw(moment, "what an object holds is changed later")
        names |= holding
    for owner, later in _stored_later(effects, moment):
        if not is_held(owner):
            continue
        if later <= moment.known or not _can_be_put_back(owner, moment):
            return _withdraw(moment, f"{', '.join(sorted(later))} of an object is stored later")
        names |= later
    moment.site.stored_later |= names
    return bool(names)


def _stored_later(effects: Any, moment: Moment) -> Iterator[tuple[VariableTracker, set[str]]]:
    """Yield objects, with the attributes stored since that the record does not keep."""
    for owner, stored in effects.store_attr_mutations.items():
        before = moment.attributes.get(owner, {})
        later = {name for name, value in stored.items() if before.get(name) is not value}
        later -= moment.put_back.get(owner, set())
        if later:
            yield owner, later


def _changed_inside(effects: Any, moment: Moment) -> Iterator[VariableTracker]:
    """Yield containers that hold something else by now, and tensors changed in place."""
    for container in moment.containers:
        if container.has_changed(besides="mutation_type"):
            yield moment.owners.get(container.variable, container.variable)
    remembered = {container.variable for container in moment.containers}
    for each in dict.fromkeys([*effects.id_to_variable.values(), *moment.versions]):
        if isinstance(each, TensorVariable):
            if _version(each) != moment.versions.get(each, 0):
                yield each
        elif remembered.isdisjoint([each, _base_of(each)]) and _is_changed(effects, each):
            yield each


def _is_changed(effects: Any, each: VariableTracker) -> bool:
    """Whether a container that was first looked at later holds something else by now."""
    if each.source is None:
        return False
    base: Any = _base_of(each)
    if base is not None:
        return bool(effects.is_modified(base))
    return snapshots.holds_items(each) and bool(effects.is_modified(each))


def _names_of(
    effects: Any, moment: Moment, value: VariableTracker, identity: int | None
) -> set[str]:
    """Return the attributes in which objects of a record hold ``value``."""
    names: set[str] = set()
    for owner in moment.inside:
        if not _can_be_put_back(owner, moment):
            continue
        stored = effects.store_attr_mutations.get(owner, {})
        names.update(name for name, each in stored.items() if each.unwrap() is value)
        held = vars(owner.value).items()  # type: ignore[attr-defined]
        names.update(name for name, each in held if id(each) == identity)
    return names


def _can_be_put_back(owner: VariableTracker, moment: Moment) -> bool:
    return (
        owner in moment.inside
        and isinstance(owner, UserDefinedObjectVariable)
        and hasattr(owner.value, "__dict__")
    )


def _withdraw(moment: Moment, detail: str) -> bool:
    moment.site.withdraw("cannot-snapshot", detail)
    return True
