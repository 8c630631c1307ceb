"""Objects in output records, which have to show what they were at the moment of the call.

A record holds an object, not a copy of it: only its own class knows what it shows. Attributes that
are stored to later in the trace are noted, and the frame is traced again; the second trace takes
snapshots of them, which the delivery puts in place while it calls the original statement. Where
something else that the object holds is changed, the site is withdrawn.

Reads Dynamo's models of objects and, behind those that were there before the call, the objects
themselves: the trace has models only of what the program reads.
"""

from __future__ import annotations

import dis
import functools
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

from bcmend.delivery import codec
from bcmend.dynamo import compat, hooks, snapshots
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import Value, constant, example_of, items_in, object_behind
from bcmend.tracing.effects.change_counts import changes
from bcmend.tracing.effects.reach import Reach
from bcmend.tracing.sites import encoding, refusal
from bcmend.tracing.sites.site_table import LiveSite

_IMMUTABLE = (compat.ConstantVariable, compat.SymNodeVariable, compat.TensorVariable)
#: What ``record_builder.snapshot`` makes a copy of.
_COPIED = (compat.ListVariable, compat.ConstDictVariable, compat.OrderedDictVariable)
Present = dict[tuple[compat.UserDefinedObjectVariable, str], Value | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """How things were when a record was made."""

    site: LiveSite
    #: The models of all that its arguments hold, and the objects behind those that were there
    #: before the call.
    inside: frozenset[Value]
    behind: Reach
    #: What had been stored to objects, what containers held, changes of tensors in place.
    attributes: dict[Value, dict[str, Value]]
    containers: tuple[snapshots.Remembered, ...]
    versions: dict[Value, int]
    #: Objects of subclasses of containers, by Dynamo's model of the container.
    owners: dict[Value, Value]
    #: The attributes of which the record has a snapshot, what was in them, and their names.
    put_back: dict[Value, set[str]]
    copied: frozenset[Value]
    known: frozenset[str]
    #: Identities of the objects that the output itself changes, what these hold, and the global
    #: variables and cells that are read for the text of an object.
    written: frozenset[int] = frozenset()
    behind_written: Reach = field(default_factory=Reach)
    globals: frozenset[str] = frozenset()
    cells: frozenset[int] = frozenset()

    def give_up(self, detail: str) -> bool:
        """Withdraw the site, and return true."""
        self.site.withdraw("cannot-snapshot", detail)
        return True


_MOMENTS: Final[Slot[list[Moment]]] = Slot(list)
#: What has been looked through for a trace, by the identities of the roots.
_REACHES: Final[Slot[dict[tuple[int, ...], Reach]]] = Slot(dict)


def of_objects(
    tx: compat.Tracer, site: LiveSite, values: Iterable[Value], snapshot: Callable[[Value], Value]
) -> Value | None:
    """Watch the objects among ``values``; return what the record has to store of them.

    That is a tuple of (object, name of an attribute, whether it existed, its value), empty if
    nothing is stored to any of them later, or ``None`` if there are no objects.
    """
    leaves = list(_not_copied(values))
    if not leaves:
        return None
    inside: dict[Value, None] = {}
    snapshots.visit(lambda one: inside.setdefault(one.unwrap()), leaves, tx.output.side_effects)
    objects = [one for one in inside if isinstance(one, compat.UserDefinedObjectVariable)]
    present: Present = {
        (owner, name): _attribute(tx, owner, name)
        for owner in objects
        if hasattr(owner.value, "__dict__")
        for name in sorted(site.stored_later)
    }
    rows: list[Value] = []
    for (owner, name), value in present.items():
        shown = constant(None) if value is None else snapshot(value)
        row = [owner, constant(name), constant(value is not None), shown]
        rows.append(compat.TupleVariable(row))
    moments = _MOMENTS.of(tx.output)
    if not moments:
        effects = tx.output.side_effects
        at_the_end(tx.output, Phase.CHECK, lambda module: _check(effects, moments))
    moments.append(_moment(tx, site, inside, [*objects, *leaves], present))
    return compat.TupleVariable(rows)


def unformatted(value: Value) -> Value:
    """Return a text that is still to be formatted as something that ``show_as_of`` formats.

    Dynamo formats it before it replays what was stored to the objects in it.
    """
    value = value.realize()
    if type(value) is compat.TupleVariable:  # such as the arguments of a call inside its callers
        items = [unformatted(item) for item in value.items]
        same = all(one is other.realize() for one, other in zip(items, value.items, strict=True))
        return value if same else compat.TupleVariable(items)
    if not isinstance(value, compat.StringFormatVariable):
        return value
    parts = [unformatted(part) for part in value.sym_args]
    named: list[Value] = [
        compat.TupleVariable([constant(name), unformatted(part)])
        for name, part in value.sym_kwargs.items()
    ]
    fields = compat.TupleVariable(parts), compat.TupleVariable(named)
    return encoding.encoded(codec.TEXT, constant(value.format_string), *fields)


def _not_copied(values: Iterable[Value]) -> Iterator[Value]:
    """Yield what ``record_builder.snapshot`` does not copy, though it might be changed."""
    for each in values:
        value = each.realize()
        items = items_in(value)
        if items is not None:
            yield from _not_copied(items)
        elif isinstance(value, compat.DictViewVariable):
            yield from _not_copied([value.dv_dict])
        elif type(value) is compat.OrderedDictVariable and value.python_type() is OrderedDict:
            contents: Any = value._base_vt
            yield from _not_copied(contents.items.values())
        elif isinstance(value, compat.StringFormatVariable):
            yield from _not_copied([*value.sym_args, *value.sym_kwargs.values()])
        elif not isinstance(value, _IMMUTABLE):
            yield value


def _attribute(
    tx: compat.Tracer, owner: compat.UserDefinedObjectVariable, name: str
) -> Value | None:
    """Return what is in an attribute now, if anything is."""
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(owner, name):
        pending: Value = effects.store_attr_mutations[owner][name]
        return None if type(pending).__name__ == "DeletedVariable" else pending
    if isinstance(owner.mutation_type, compat.AttributeMutationNew):
        return None
    held = vars(owner.value)  # a module has dictionaries of more
    places = [held, *(held.get(each, {}) for each in ("_buffers", "_modules"))]
    return owner.var_getattr(tx, name) if any(name in each for each in places) else None


def _moment(
    tx: compat.Tracer,
    site: LiveSite,
    inside: Iterable[Value],
    roots: Iterable[Value],
    present: Present,
) -> Moment:
    effects = tx.output.side_effects
    put_back: dict[Value, set[str]] = {}
    for owner, name in present:
        put_back.setdefault(owner, set()).add(name)
    known = dict.fromkeys([*effects.id_to_variable.values(), *inside])
    owners = {base: each for each in known if (base := _base_of(each)) is not None}
    written = list(_written_by(inside))
    texts = [method for each in inside for method in _text_of(each)]
    holding = filter(snapshots.holds_items, (*known, *owners))
    return Moment(
        site,
        frozenset(inside),
        _reach(tx, (_real(tx, root) for root in roots)),
        {owner: dict(stored) for owner, stored in effects.store_attr_mutations.items()},
        tuple(map(snapshots.remember, holding)),
        {each: _version(each) for each in known if isinstance(each, compat.TensorVariable)},
        owners,
        put_back,
        frozenset(each.realize() for each in present.values() if each is not None),
        frozenset(site.stored_later),
        frozenset(map(id, written)),
        _reach(tx, written),
        frozenset(name for each in texts for name in each.__code__.co_names),
        frozenset(id(cell) for each in texts for cell in each.__closure__ or ()),
    )


def _reach(tx: compat.Tracer, roots: Iterable[object]) -> Reach:
    found = list(roots)
    known = _REACHES.of(tx.output)
    return known.setdefault(tuple(map(id, found)), Reach(found))


def _written_by(inside: Iterable[Value]) -> Iterator[object]:
    """Yield the objects that output of ``inside`` changes by code of the program, and that code."""
    for each in inside:
        value = object_behind(each)
        if isinstance(value, logging.Logger):
            for found in _asked_by(value):
                yield from (found, *_methods_of(found))
        elif isinstance(each, compat.UserDefinedObjectVariable):
            write = inspect.getattr_static(type(value), "write", None)
            if isinstance(write, FunctionType):
                yield from (value, write)
            elif any(_stores(method.__code__) for method in _text_of(each)):
                yield value


def _asked_by(logger: logging.Logger) -> Iterator[object]:
    """Yield handlers, filters and formatters of the program that see what a logger writes."""
    found: list[object] = [*logger.filters]
    at: logging.Logger | None = logger
    while at is not None:
        for handler in at.handlers:
            found += [handler, handler.formatter, *handler.filters]
        at = at.parent if at.propagate else None
    yield from (each for each in found if type(each).__module__ != logging.__name__)


def _methods_of(value: object) -> Iterator[FunctionType]:
    for kind in type(value).__mro__:
        if kind.__module__ not in (logging.__name__, "builtins"):
            yield from (each for each in vars(kind).values() if isinstance(each, FunctionType))


def _text_of(variable: Value) -> Iterator[FunctionType]:
    """Yield the functions of the program that make the text of an object."""
    if isinstance(variable, compat.UserDefinedObjectVariable):
        for name in ("__str__", "__repr__", "__format__"):
            method = inspect.getattr_static(type(variable.value), name, None)
            if isinstance(method, FunctionType):
                yield method


@functools.cache
def _stores(code: CodeType) -> bool:
    return any(each.opname in _STORES for each in dis.get_instructions(code))


_STORES: Final = frozenset(
    "STORE_ATTR DELETE_ATTR STORE_SUBSCR DELETE_SUBSCR STORE_GLOBAL STORE_DEREF".split()
)


@hooks.around(compat.UserDefinedObjectVariable, "generic_getattr", "objects that output changes")
def _read_attribute(inner: Any, self: Any, tx: compat.Tracer, name: str) -> Value:
    """Read an attribute; withdraw output that should have changed the object by now."""
    for moment in _MOMENTS.of(tx.output):
        if id(self.value) in moment.written and self.source is not None:
            moment.give_up("the call reads an object that the output changes")
            raise refusal.SiteChanged(restart_reason="bcmend: what output changes is read")
    found: Value = inner(self, tx, name)
    return found


def _base_of(variable: Value) -> Value | None:
    """Return the model of the container that an object of a subclass of one has."""
    return vars(variable).get("_base_vt")


def _version(tensor: compat.TensorVariable) -> int:
    return changes(example_of(tensor))


def _real(tx: compat.Tracer, root: Value) -> object:
    """Return the object that was there before the call, or ``None``."""
    if root.source is None:
        return None
    effects = tx.output.side_effects
    found = next((key for key, known in effects.id_to_variable.items() if known is root), None)
    if found is None:
        return object_behind(root)
    return next((each for each in effects.keepalive if id(each) == found), None)


def require_closed(
    tx: compat.Tracer, sites: Collection[LiveSite], containers: Iterable[Value]
) -> None:
    """Restart the trace if output in an arm holds a container that the branch journals.

    The branch gives it the contents of the arm that is taken, before that output is written.
    """
    known = tx.output.side_effects.id_to_variable.items()
    found = [moment for moment in _MOMENTS.of(tx.output) if moment.site in sites]
    withdrawn = False
    for container in containers if found else ():
        for moment in found:
            held = [container, moment.owners.get(container, container)]
            is_behind = any(
                one is each and key in moment.behind.identities
                for key, one in known
                for each in held
            )
            if is_behind or not moment.inside.isdisjoint(held):
                withdrawn = moment.give_up("what an object holds is changed behind it in an arm")
    if withdrawn:
        raise refusal.SiteChanged(restart_reason="bcmend: an object is changed in an arm")


def _check(effects: Any, moments: Iterable[Moment]) -> None:
    """Restart the trace if a record would show what was not there yet."""
    changed = [moment for moment in moments if _has_changed(effects, moment)]
    if changed:
        raise refusal.SiteChanged(restart_reason="bcmend: an object is changed later")


def _has_changed(effects: Any, moment: Moment) -> bool:
    """Return whether the objects of a record are changed later, other than in its snapshots.

    Withdraws the site, or notes what the next trace has to snapshot.
    """
    identity = {known: key for key, known in effects.id_to_variable.items()}

    def is_held(each: Value) -> bool:
        return each in moment.inside or identity.get(each) in moment.behind.identities

    seen = _seen_by_the_call(effects, moment, identity)
    if seen:
        return moment.give_up(seen)
    names: set[str] = set()
    for each in _changed_inside(effects, moment):
        if each in moment.copied or not is_held(each):
            continue
        is_copied = type(each) in _COPIED or isinstance(each, compat.TensorVariable)
        holding = _names_of(effects, moment, each, identity.get(each)) if is_copied else set()
        if not holding - moment.known:
            return moment.give_up("what an object holds is changed later")
        names |= holding
    for owner, later in _stored_later(effects, moment):
        if not is_held(owner):
            continue
        if later <= moment.known or not _can_be_put_back(owner, moment):
            return moment.give_up(f"{', '.join(sorted(later))} of an object is stored later")
        names |= later
    moment.site.stored_later |= names
    return bool(names)


def _seen_by_the_call(effects: Any, moment: Moment, identity: dict[Value, int]) -> str:
    """Return how the rest of the call can see that output is delayed; empty if it cannot."""
    known = effects.id_to_variable
    held = moment.behind_written.identities - moment.written
    behind = [known[key] for key in held.intersection(known)]
    if any(_base_of(each) is not None or snapshots.holds_items(each) for each in behind):
        return "the call looks at what the output changes"
    for owner, later in _stored_later(effects, moment):
        if isinstance(owner, compat.NewGlobalVariable) and later & moment.globals:
            return f"{min(later)}, which a text shows, is stored later"
        if isinstance(owner, compat.CellVariable) and identity.get(owner) in moment.cells:
            return "a variable that a text shows is stored later"
        if identity.get(owner) in moment.written:
            return "an object that the output changes is stored to later"
    return ""


def _stored_later(effects: Any, moment: Moment) -> Iterator[tuple[Value, set[str]]]:
    """Yield objects, with the attributes stored since of which the record has no snapshot."""
    for owner, stored in effects.store_attr_mutations.items():
        before = moment.attributes.get(owner, {})
        later = {name for name, value in stored.items() if before.get(name) is not value}
        later -= moment.put_back.get(owner, set())
        if later:
            yield owner, later


def _changed_inside(effects: Any, moment: Moment) -> Iterator[Value]:
    """Yield containers that hold something else by now, and tensors changed in place."""
    for container in moment.containers:
        if container.has_changed(besides="mutation_type"):
            yield moment.owners.get(container.variable, container.variable)
    remembered = {container.variable for container in moment.containers}
    for each in dict.fromkeys([*effects.id_to_variable.values(), *moment.versions]):
        if isinstance(each, compat.TensorVariable):
            if _version(each) != moment.versions.get(each, 0):
                yield each
            continue
        base = _base_of(each)
        is_container = base is not None or snapshots.holds_items(each)
        if each.source is None or not is_container or {each, base} & remembered:
            continue
        if effects.is_modified(each if base is None else base):  # first looked at since then
            yield each


def _names_of(effects: Any, moment: Moment, value: Value, identity: int | None) -> set[str]:
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


def _can_be_put_back(owner: Value, moment: Moment) -> bool:
    if owner not in moment.inside or not isinstance(owner, compat.UserDefinedObjectVariable):
        return False
    return hasattr(owner.value, "__dict__")
