"""Objects in output records, which have to show what they were at the moment of the call.

A record holds an object, not a copy of it: only its own class knows what it shows. Attributes that
are stored to later in the trace are noted, and the frame is traced again; the second trace takes
snapshots of them, which the delivery puts in place while it calls the original statement. Where
something else that the object holds is changed, the site is withdrawn.

Reads Dynamo's models of objects and, behind those that were there before the call, the objects
themselves: the trace has models only of what the program reads.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bcmend.delivery import codec
from bcmend.dynamo import compat, handlers, hooks, snapshots
from bcmend.dynamo.models import containers, exceptions, methods, objects, texts
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import Value, constant, example_of, items_in, object_behind
from bcmend.knowledge import static_lookup
from bcmend.tracing.effects import watches, written_objects
from bcmend.tracing.effects.change_counts import changes
from bcmend.tracing.effects.reach import Reach
from bcmend.tracing.effects.text_reach import TextReach
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import encoding
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
    #: Identities of the objects that the output itself changes, what these hold, and what the text
    #: of the arguments can depend on.
    written: frozenset[int] = frozenset()
    behind_written: Reach = field(default_factory=Reach)
    text: TextOfArguments = field(default_factory=lambda: TextOfArguments((), ()))
    #: The global variables that the output stores to: identity of the namespace, and name.
    stored_globals: frozenset[tuple[int, str]] = frozenset()
    #: Whether Dynamo makes a text of it before it replays what was stored.
    is_text: bool = False

    def may_show(self, identity: int) -> bool:
        """Return whether output may show an object that was there before the call."""
        text = self.text.reach
        return text.is_open or identity in text.identities or identity in self.behind.identities

    def unkept(self, detail: str) -> Finding:
        return self.site.unmendable("cannot-snapshot", detail)


class TextOfArguments:
    """What the text of arguments can depend on; looked through when it is asked for first."""

    def __init__(self, roots: Iterable[object], kinds: Iterable[type]) -> None:
        self._roots = list(roots)
        self._kinds = list(kinds)

    @functools.cached_property
    def reach(self) -> TextReach:
        return TextReach(self._roots, self._kinds)


_MOMENTS: Final[Slot[list[Moment]]] = Slot(list, rolls_back=True)
#: What has been looked through for a trace, by the identities of the roots.
_REACHES: Final[Slot[dict[tuple[int, ...], Reach]]] = Slot(dict, rolls_back=False)
_TEXTS: Final[Slot[dict[tuple[int, ...], TextOfArguments]]] = Slot(dict, rolls_back=False)


def of_objects(
    tx: compat.Tracer, site: LiveSite, values: Iterable[Value], snapshot: Callable[[Value], Value]
) -> Value | None:
    """Watch the objects among ``values``; return what the record has to store of them.

    That is a tuple of (object, name of an attribute, whether it existed, its value), empty if
    nothing is stored to any of them later, or ``None`` if there are no objects.
    """
    leaves = list(_not_copied(values))
    if not leaves:
        if any(written_objects.unasked()) or any(written_objects.streams()):
            _add(tx, _moment(tx, site, (), (), {}))
        return None
    inside: dict[Value, None] = {}
    snapshots.visit(
        lambda one: inside.setdefault(one.unwrap()), leaves, tx.output.side_effects, lazily=True
    )
    owners = [one for one in inside if isinstance(one, compat.UserDefinedObjectVariable)]
    present: Present = {
        (owner, name): _attribute(tx, owner, name)
        for owner in owners
        if type(owner.value).__dictoffset__ != 0
        for name in sorted(site.all_found(Claim.NOT_STORED))
    }
    rows: list[Value] = []
    for (owner, name), value in present.items():
        shown = constant(None) if value is None else snapshot(value)
        row = [owner, constant(name), constant(value is not None), shown]
        rows.append(compat.TupleVariable(row))
    _add(tx, _moment(tx, site, inside, [*owners, *leaves], present))
    return compat.TupleVariable(rows)


def _add(tx: compat.Tracer, moment: Moment) -> None:
    moments = _MOMENTS.of(tx.output)
    if not moments:
        effects = tx.output.side_effects
        at_the_end(tx.output, Phase.CHECK, lambda module: _check(effects, moments))
        at_the_end(tx.output, Phase.CHECK, lambda module: _check_variables(tx.output, moments))
    moments.append(moment)


def of_text(tx: compat.Tracer, site: LiveSite, values: Iterable[Value]) -> None:
    """Watch the objects in a text that Dynamo makes when the graph has run.

    It makes it before it replays what the call stores to objects that were there before: neither
    what was stored already nor what is stored later may be shown.
    """
    leaves = list(_not_copied(values))
    inside: dict[Value, None] = {}
    snapshots.visit(
        lambda one: inside.setdefault(one.unwrap()), leaves, tx.output.side_effects, lazily=True
    )
    if not any(isinstance(one, compat.UserDefinedObjectVariable) for one in inside):
        return
    moment = _moment(tx, site, inside, leaves, {})
    old = {owner for owner in moment.attributes if owner.source is not None}
    attributes = {key: each for key, each in moment.attributes.items() if key not in old}
    _add(tx, replace(moment, attributes=attributes, is_text=True))


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
    parts = [unformatted(part) for part in texts.arguments_of(value)]
    named: list[Value] = [
        compat.TupleVariable([constant(name), unformatted(part)])
        for name, part in texts.named_arguments_of(value).items()
    ]
    fields = compat.TupleVariable(parts), compat.TupleVariable(named)
    return encoding.encoded(codec.TEXT, constant(texts.template_of(value)), *fields)


def _not_copied(values: Iterable[Value]) -> Iterator[Value]:
    """Yield what ``record_builder.snapshot`` does not copy, though it might be changed."""
    for each in values:
        value = each.realize()
        items = items_in(value)
        if items is not None:
            yield from _not_copied(items)
        elif isinstance(value, compat.DictViewVariable):
            yield from _not_copied([containers.dictionary_of(value)])
        elif type(value) is compat.OrderedDictVariable and value.python_type() is OrderedDict:
            contents: Any = containers.contents_of(value)
            yield from _not_copied(contents.items.values())
        elif isinstance(value, compat.StringFormatVariable):
            yield from _not_copied(texts.parts_of(value))
        elif not isinstance(value, _IMMUTABLE):
            yield value


def _attribute(
    tx: compat.Tracer, owner: compat.UserDefinedObjectVariable, name: str
) -> Value | None:
    """Return what is in an attribute now, if anything is."""
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(owner, name):
        pending: Value = effects.store_attr_mutations[owner][name]
        return None if type(pending) is compat.DeletedVariable else pending
    if isinstance(owner.mutation_type, compat.AttributeMutationNew):
        return None
    held = static_lookup.dictionary(owner.value)  # a module has dictionaries of more
    places = [held, *(held.get(each, {}) for each in ("_buffers", "_modules"))]
    return objects.attribute_of(tx, owner, name) if any(name in each for each in places) else None


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
    owners = {base: each for each in known if (base := containers.contents_of(each)) is not None}
    written = [*written_objects.written_by(inside), *written_objects.unasked()]
    told = [*written, *written_objects.streams()]
    holding = filter(snapshots.holds_state, dict.fromkeys([*known, *owners]))
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
        frozenset(site.all_found(Claim.NOT_STORED)),
        frozenset(map(id, [*told, *written_objects.classes_of(told)])),
        _reach(tx, written),
        _text(tx, inside),
        frozenset(written_objects.globals_stored_by(written)),
    )


def _reach(tx: compat.Tracer, roots: Iterable[object]) -> Reach:
    found = list(roots)
    known = _REACHES.of(tx.output)
    return known.setdefault(tuple(map(id, found)), Reach(found))


@handlers.attribute_read("classes that output changes", place=6)
def _read_of_class(read: handlers.Read, tx: compat.Tracer, owner: Any, default: Any) -> Any:
    """Read an attribute of a class; withdraw output that should have stored to it by now."""
    model = owner.realize()
    if isinstance(model, compat.UserDefinedClassVariable):
        _withdraw_writers_of(tx, model.value)
    return read(owner)


def _withdraw_writers_of(tx: compat.Tracer, value: object) -> None:
    for moment in _MOMENTS.of(tx.output):
        if id(value) in moment.written:
            falsify(moment.unkept("the call reads an object that the output changes"))


@hooks.around(
    compat.UserDefinedObjectVariable, methods.GENERIC_GETATTR, "objects that output changes"
)
def _read_attribute(inner: Any, self: Any, tx: compat.Tracer, name: str) -> Value:
    """Read an attribute; withdraw output that should have changed the object by now."""
    if self.source is not None:
        _withdraw_writers_of(tx, self.value)
    found: Value = inner(self, tx, name)
    return found


def _text(tx: compat.Tracer, inside: Iterable[Value]) -> TextOfArguments:
    identity = {known: key for key, known in tx.output.side_effects.id_to_variable.items()}
    behind = {id(each): each for each in tx.output.side_effects.keepalive}
    roots, kinds = [], []
    for each in inside:
        value = object_behind(each)
        if written_objects.writer_of(value) is not None or written_objects.only_writes(value):
            continue
        if isinstance(each, compat.UserDefinedObjectVariable):
            kinds.append(type(each.value))
        if type(each) is compat.LazyVariableTracker:
            roots.append(None if each.is_realized() else objects.original_value(each))
        elif each.source is not None:
            roots.append(behind.get(identity.get(each, 0), value))
    key = tuple(map(id, (*roots, *kinds)))
    return _TEXTS.of(tx.output).setdefault(key, TextOfArguments(roots, kinds))


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
    withdrawn: list[Finding] = []
    for container in containers if found else ():
        for moment in found:
            held = [container, moment.owners.get(container, container)]
            is_behind = any(
                any(one is each for each in held) and moment.may_show(key) for key, one in known
            )
            if is_behind or not moment.inside.isdisjoint(held):
                detail = "what an object holds is changed behind it in an arm"
                withdrawn.append(moment.unkept(detail))
    if withdrawn:
        falsify(*withdrawn)


def _check_variables(output: compat.OutputGraph, moments: Iterable[Moment]) -> None:
    """Restart the trace if the call reads a global variable that a record will store to."""
    namespace = id(output.root_tx.f_globals)
    sources = [each.originating_source for each in output.guards]
    names = {each.global_name for each in sources if isinstance(each, compat.GlobalSource)}
    for moment in moments:
        if any(at == namespace and name in names for at, name in moment.stored_globals):
            falsify(moment.unkept("the call reads a variable that the output stores to"))


def _check(effects: Any, moments: Iterable[Moment]) -> None:
    """Restart the trace if a record would show what was not there yet."""
    looked_at = (one for one in moments if not one.is_text or one.text.reach.is_own)
    found = [finding for moment in looked_at for finding in _changes(effects, moment)]
    if found:
        falsify(*found)


def _changes(effects: Any, moment: Moment) -> list[Finding]:
    """Return the finding that objects of a record are changed later, other than in its snapshots.

    That withdraws the site, or says what the next trace has to snapshot.
    """
    identity = {known: key for key, known in effects.id_to_variable.items()}
    seen = _seen_by_the_call(effects, moment, identity)
    if seen:
        return [moment.unkept(seen)]
    shown = _shown(effects, moment, identity)

    def is_held(each: Value) -> bool:
        return each in shown or identity.get(each) in moment.behind.identities

    names: set[str] = set()
    for each in _changed_inside(effects, moment):
        if each in moment.copied or not is_held(each):
            continue
        is_copied = type(each) in _COPIED or isinstance(each, compat.TensorVariable)
        holding = _names_of(effects, moment, each, identity.get(each)) if is_copied else set()
        if not holding - moment.known:
            return [moment.unkept("what an object holds is changed later")]
        names |= holding
    for owner, later in _stored_later(effects, moment):
        if not is_held(owner):
            continue
        if later <= moment.known or not _can_be_put_back(owner, moment, later):
            return [moment.unkept(f"{', '.join(sorted(later))} of an object is stored later")]
        names |= later
    if names and moment.is_text:
        return [moment.unkept(f"{min(names)} of an object is stored in the call")]
    return [
        Finding(Claim.NOT_STORED, moment.site, name, evidence=name)
        for name in sorted(names - moment.known)
    ]


def _seen_by_the_call(effects: Any, moment: Moment, identity: dict[Value, int]) -> str:
    """Return how the rest of the call can see that output is delayed; empty if it cannot."""
    known, text = effects.id_to_variable, moment.text.reach
    if text.changes:
        return f"{text.changes} changes more than its object"
    held = moment.behind_written.identities - moment.written
    behind = [known[key] for key in held.intersection(known)]
    if any(
        containers.contents_of(each) is not None or snapshots.holds_items(each) for each in behind
    ):
        return "the call looks at what the output changes"
    for owner, later in _stored_later(effects, moment):
        if isinstance(owner, compat.NewGlobalVariable) and (text.is_open or later & text.names):
            return f"{min(later)}, which a text shows, is stored later"
        is_cell = isinstance(owner, compat.CellVariable)
        if is_cell and (text.is_open or identity.get(owner) in text.identities):
            return "a variable that a text shows is stored later"
        if identity.get(owner) in moment.written:
            return "an object that the output changes is stored to later"
    return ""


def _shown(effects: Any, moment: Moment, identity: dict[Value, int]) -> set[Value]:
    """Return the models of all that the text can depend on, with what is new in the call."""
    text = moment.text.reach
    found = set(moment.inside)
    roots = [
        each
        for each, key in identity.items()
        if key in text.identities or (text.is_open and each.source is not None)
    ]
    snapshots.visit(lambda one: found.add(one.unwrap()), roots, effects, lazily=True)
    return found


def _stored_later(effects: Any, moment: Moment) -> Iterator[tuple[Value, set[str]]]:
    """Yield objects, with the attributes stored since of which the record has no snapshot."""
    for owner, stored in effects.store_attr_mutations.items():
        before = moment.attributes.get(owner, {})
        later = {
            name
            for name, value in stored.items()
            if not watches.compute_the_same(before.get(name), value)
        }
        later -= moment.put_back.get(owner, set())
        if later:
            yield owner, later


def _changed_inside(effects: Any, moment: Moment) -> Iterator[Value]:
    """Yield containers that hold something else by now, and tensors changed in place."""
    for container in moment.containers:
        is_exception = snapshots.is_exception(container.variable)
        among = exceptions.IN_TEXTS if is_exception else None
        if container.has_changed(besides=containers.NOTES, among=among):
            yield moment.owners.get(container.variable, container.variable)
    remembered = {container.variable for container in moment.containers}
    for each in dict.fromkeys([*effects.id_to_variable.values(), *moment.versions]):
        if isinstance(each, compat.TensorVariable):
            if _version(each) != moment.versions.get(each, 0):
                yield each
            continue
        base = containers.contents_of(each)
        is_container = base is not None or snapshots.holds_items(each)
        if each.source is None or not is_container:
            continue
        if {each, base} & remembered and not moment.is_text:
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
        held = static_lookup.dictionary(owner.value).items()  # type: ignore[attr-defined]
        names.update(name for name, each in held if id(each) == identity)
    return names


def _can_be_put_back(owner: Value, moment: Moment, names: Iterable[str] = ()) -> bool:
    if owner not in moment.inside or not isinstance(owner, compat.UserDefinedObjectVariable):
        return False
    kind = type(owner.value)
    return kind.__dictoffset__ != 0 and not any(_is_kept_elsewhere(kind, name) for name in names)


def _is_kept_elsewhere(kind: type, name: str) -> bool:
    """Return whether a descriptor of the class stores an attribute, such as that of a slot."""
    found = inspect.getattr_static(kind, name, None)
    return inspect.getattr_static(type(found), "__set__", None) is not None
