"""Containers whose contents are data-dependent.

A list that one side of a branch appends to has two contents, and no single model of Dynamo's. Such
a container is journaled: records under the condition and its contrary give it the contents of the
side taken when the graph has run, and what is done to it later becomes a record too. The object
itself stays what it is. Whatever looks at its contents while the call is traced makes Dynamo trace
the frame again, with the branch told not to journal anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from bcmend import meta_keys
from bcmend.delivery import records
from bcmend.dynamo import compat
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import Value, constant, with_items
from bcmend.tracing.merging.merge import Join, Merger, is_made_inside
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.phi import Build, Keep, Merged, OpenContents, Phi
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import iterators

#: The field of a variable that says which branch journals it.


@dataclass(frozen=True, slots=True, eq=False)
class Journal:
    """Which branch journals a container, in which form, and the trace that it happened in."""

    site: LiveSite
    form: int
    output: compat.OutputGraph


#: Methods that return nothing and never fail, and how many arguments they take.
_RECORDED: Final[Mapping[type, Mapping[str, int]]] = {
    compat.ListVariable: {"append": 1, "extend": 1, "clear": 0, "reverse": 0},
    compat.DequeVariable: {"append": 1, "appendleft": 1, "extend": 1, "extendleft": 1, "clear": 0},
    compat.ConstDictVariable: {"__setitem__": 2, "update": 1, "clear": 0},
    compat.SetVariable: {"add": 1, "discard": 1, "update": 1, "clear": 0},
}

#: Methods of a dictionary that look at one key, their first argument, and change nothing.
_READING: Final = ("get", "__getitem__", "__contains__")


def look_at_contents(output: compat.OutputGraph, is_read: Finding, *others: Finding) -> NoReturn:
    """Have the frame traced again, for it looks at contents that a branch leaves in two forms.

    The branch would be refused then in its first form, and the trace be made in vain; so a wider
    one is written at once.
    """
    site: Any = is_read.subject
    if not is_read.of:
        body_states.widen(output.current_tx, site, body_states.READ_LATER, is_read, *others)
    falsify(is_read, *others)


class JournaledContainer(OpenContents, Phi):
    """What a journaled container does differently from Dynamo's model of its type, ``plain``."""

    plain: type[Value]

    @property
    def journal(self) -> Journal:
        found: Journal = vars(self)[meta_keys.JOURNAL]
        return found

    @property
    def output(self) -> compat.OutputGraph:
        return self.journal.output

    def appended_to(self, tx: compat.Tracer) -> Any:
        return _Appender(tx, self)

    def ask(self) -> NoReturn:
        """Have the frame traced again without journaling this container."""
        journal = self.journal
        look_at_contents(journal.output, Finding(Claim.READ_APART, journal.site, journal.form))

    def call_method(
        self, tx: compat.Tracer, name: str, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Value:
        recorded = _RECORDED[containers.kind_of(self.plain)]
        if keywords or recorded.get(name) != len(arguments):
            self.ask()
        self.record(tx, name, arguments)
        return constant(None)

    # A class of the program may have replaced the methods behind these operators.

    @methods.implements(methods.ASSIGN_SUBSCRIPT)
    def _assign(self, tx: compat.Tracer, key: Any, value: Any) -> Value:
        """Model ``self[key] = value``, or the deletion of an item where there is no value."""
        if value is None:
            self.ask()
        return JournaledContainer.call_method(self, tx, "__setitem__", [key, value], {})

    @methods.implements(methods.INPLACE_OR)
    def _updated_by(self, tx: compat.Tracer, other: Any) -> Value:
        JournaledContainer.call_method(self, tx, "update", [other], {})
        assert isinstance(self, compat.VariableTracker)
        return self

    def record(self, tx: compat.Tracer, method: str, arguments: Sequence[Value]) -> None:
        """Have a method called when the graph has run."""
        if iterators.go_over(tx, self):  # type: ignore[arg-type]
            self.ask()  # it may get another size, at which the iterator fails
        if method in ("extend", "extendleft", "update"):
            arguments = [self._as_it_is_now(tx, arguments[0])]
        elif method in ("__setitem__", "add", "discard") and not compat.is_hashable(arguments[0]):
            self.ask()
        site = self.journal.site
        values = [_as_recorded(each, site) for each in arguments]
        inputs = [_owner(tx, self), constant(method), *values]
        record_builder.append(tx, record_builder.store_by(tx, site, records.alter, inputs))

    def _as_it_is_now(self, tx: compat.Tracer, argument: Any) -> Value:
        """Return what a container is extended by, whatever is changed later."""
        argument = argument.realize()
        if isinstance(argument, JournaledContainer):
            return _owner(tx, argument)  # its contents are right when the record is delivered
        if not isinstance(self, _JournaledDict):
            return compat.TupleVariable(compat.unpack_iterable(tx, argument))
        is_dictionary = isinstance(argument, compat.ConstDictVariable)
        if not (is_dictionary and containers.has_plain_methods(argument)):
            self.ask()
        containers.guard_keys(argument)
        return pairs_of(argument.items.items())

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        """Return the container, whose later changes are later records."""
        assert isinstance(self, compat.VariableTracker)
        return self

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        variable: Any = self
        if not is_made_inside(variable):
            return lambda merged: variable
        plain = self.plain.__new__(self.plain)
        vars(plain).update(vars(variable))
        del vars(plain)[meta_keys.JOURNAL]
        plan = merger.adopt(plain, then_side=then_side)

        def build(merged: Merged) -> Value:
            built = plan(merged)
            start(built, self.journal)
            return built

        return build


class _JournaledList(JournaledContainer, compat.ListVariable):
    plain = compat.ListVariable


class _JournaledDeque(JournaledContainer, compat.DequeVariable):
    plain = compat.DequeVariable


class _JournaledDict(JournaledContainer, compat.ConstDictVariable):
    plain = compat.ConstDictVariable

    def _known(self, tx: compat.Tracer, key: Value) -> compat.ConstDictVariable:
        """Return a dictionary that knows of ``key`` what this one does; itself, if that is all."""
        return untouched(tx, self, _owner(tx, self), key) or self

    def call_method(
        self, tx: compat.Tracer, name: str, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Value:
        if name in _READING and arguments and not keywords:
            known = self._known(tx, arguments[0])
            if known is not self:
                return known.call_method(tx, name, list(arguments), keywords)
        return super().call_method(tx, name, arguments, keywords)

    @methods.implements(methods.SUBSCRIPT)
    def _item(self, tx: compat.Tracer, key: Value) -> Value:
        """Model ``self[key]``."""
        return containers.item_of_dictionary(self._known(tx, key), tx, key)

    @methods.implements(methods.CONTAINS)
    def _has(self, tx: compat.Tracer, item: Value) -> Value:
        """Model ``item in self``."""
        return containers.has_key(self._known(tx, item), tx, item)


class _JournaledDefaultDict(_JournaledDict):
    @methods.implements(methods.SUBSCRIPT)
    def _item(self, tx: compat.Tracer, key: Value) -> Value:
        """Model ``self[key]``, which makes a missing item."""
        known = self._known(tx, key)
        if known is self or not containers.has_key(known, tx, key).as_python_constant():
            self.ask()
        return containers.item_of_dictionary(known, tx, key)


class _JournaledSet(JournaledContainer, compat.SetVariable):
    plain = compat.SetVariable


_KINDS: Final[dict[type, type]] = {
    kind.plain: kind for kind in (_JournaledList, _JournaledDeque, _JournaledDict, _JournaledSet)
}
for _model in (*containers.DICTIONARIES_BY_ITEMS, *containers.OBJECTS_BY_ITEMS):
    _fills = issubclass(_model, compat.DefaultDictVariable)
    _contents = _JournaledDefaultDict if _fills else _KINDS[containers.kind_of(_model)]
    _fields = {"plain": _model, "__module__": __name__}
    _KINDS[_model] = (
        containers.object_with_contents(_model, _contents, _fields)
        if _model in containers.OBJECTS_BY_ITEMS
        else type(f"{_contents.__name__}Of{_model.__name__}", (_contents, _model), _fields)
    )


def untouched(
    tx: compat.Tracer, journaled: Any, owner: Value, key: Value
) -> compat.ConstDictVariable | None:
    """Return a dictionary that has ``key`` if and only if a journaled one has, with its value.

    ``None`` where the records, which say all that was done to it since the branch, may have touched
    that key; they call the dictionary ``owner``.
    """
    key = key.realize()
    if not (key.is_python_constant() and compat.is_hashable(key)):
        return None
    wanted = key.as_python_constant()
    for inputs in record_builder.records_until_now(tx):
        for each in _touched(inputs, owner):
            if each is None or not each.is_python_constant() or each.as_python_constant() == wanted:
                return None
    containers.guard_keys(journaled)
    items = {
        known: value
        for known, value in vars(journaled)["items"].items()
        if (model := containers.key_model(known)).is_python_constant()
        and model.as_python_constant() == wanted
    }
    return containers.part_of_dictionary(journaled, items)


def _touched(inputs: Any, owner: Value) -> Iterator[Value | None]:
    """Yield the keys that a record sets or removes in ``owner``; ``None`` for any key."""
    if not isinstance(inputs, compat.TupleVariable) or not any(
        each is owner for each in inputs.items
    ):
        return
    match inputs.items:
        case [first, compat.ConstantVariable(value="__setitem__"), key, *_] if first is owner:
            yield key  # of ``records.alter``
        case [first, compat.TupleVariable() as keys, compat.TupleVariable() as pairs] if (
            first is owner  # of ``records.refill``
        ):
            yield from keys.items
            for pair in pairs.items:
                yield pair.items[0] if isinstance(pair, compat.TupleVariable) else None
        case _:
            yield None


@dataclass(frozen=True, slots=True)
class _Appender:
    """Stands in for the list behind a journaled one, for the instruction of a comprehension."""

    tx: compat.Tracer
    owner: JournaledContainer

    def append(self, item: Value) -> None:
        self.owner.record(self.tx, "append", [item])


def _as_recorded(value: Any, site: LiveSite) -> Value:
    """Return a value for a record, which may hold both sides of a branch."""
    if type(value) is compat.TupleVariable:
        return with_items(value, [_as_recorded(each, site) for each in value.items])
    if isinstance(value, Phi):
        return value.as_recorded(site, lambda side: side)
    assert isinstance(value, compat.VariableTracker)
    return value


def can_be_journaled(variable: Value) -> bool:
    """Return whether there is a model of such a container whose contents are data-dependent."""
    return type(variable) in _KINDS


def start(variable: Value, journal: Journal) -> None:
    """Have what is done to a container from here on recorded."""
    if not isinstance(variable, JournaledContainer):
        vars(variable)[meta_keys.JOURNAL] = journal
        variable.__class__ = _KINDS[type(variable)]


def _owner(tx: compat.Tracer, container: Any) -> Value:
    """Return the object whose contents a container models, where it is not that object itself."""
    variables = tx.output.side_effects.id_to_variable.values()
    owner: Value = next(
        (each for each in variables if containers.contents_of(each) is container), container
    )
    return owner


def pairs_of(items: Iterable[tuple[Any, Value]]) -> compat.TupleVariable:
    """Return keys and values as a record has them."""
    return compat.TupleVariable(
        [compat.TupleVariable([containers.key_model(key), value]) for key, value in items]
    )


def refill(join: Join, variable: Value, removed: Value, added: Build) -> Callable[[Merged], Draft]:
    """Plan the record that turns the contents from before a branch into those of one side."""
    tx, site = join.tx, join.site

    def record(merged: Merged) -> Draft:
        inputs = [_owner(tx, variable), removed, _as_recorded(added(merged), site)]
        return record_builder.store_by(tx, site, records.refill, inputs)

    return record
